#include "cache/server/server.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/text.h"
#include "cache/server/metrics_server.h"
#include "cache/server/metrics_text.h"
#include "cache/server/requests.h"
#include "io/process.h"

namespace quiver::cache {

// In the order in which they are made; they go in the reverse one.
struct Daemon::Parts {
  Parts(DaemonOptions o, DaemonEnvironment e, std::unique_ptr<Store> s, Bytes disk_limit)
      : options(std::move(o)),
        environment(e),
        store(std::move(s)),
        pool(options.settings.fetch_concurrency,
             Bytes(options.settings.memory_limit.value / limits::kKeptBuffersPart /
                   static_cast<std::uint64_t>(options.settings.fetch_concurrency)),
             *store, events),
        control(ControlContext{options.settings, *store, pool, e.files, e.clock, e.log, disk_limit,
                               options.cache_directory, kSoftware, options.pid}),
        requests{options, environment, *store, events, building, server, checking, paces} {}

  const DaemonOptions options;
  const DaemonEnvironment environment;
  const std::unique_ptr<Store> store;
  EventQueue events;
  Guarded<std::set<Sha256>> building;
  Guarded<bool> checking{false};
  OriginPaces paces{environment.clock};
  FetchPool pool;
  Control control;
  const RequestContext requests;
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<MetricsServer> metrics;  // where the settings ask for it
  io::FileInfo socket;                     // as it was bound
  Instant next_socket_look{}, next_socket_warning{};
};

Result<Bytes> disk_limit_of(const Settings& settings, const std::string& directory,
                            io::Files& files, Bytes held) {
  if (settings.disk_limit.size) return *settings.disk_limit.size;
  // The directory may not be there yet: the disk is that of the nearest parent that is.
  std::string path = directory;
  auto space = files.space(path);
  while (!space && path.size() > 1) {
    path = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
    space = files.space(path);
  }
  if (!space) return std::move(space).error().context("finding the size of the cache's disk");
  const double total = static_cast<double>(space->total.value);
  if (settings.disk_limit.share) {
    return Bytes(static_cast<std::uint64_t>(total * *settings.disk_limit.share));
  }
  const double leaves = static_cast<double>((space->available + held).value) - 0.15 * total;
  const double limit = std::min(0.2 * total, leaves);
  if (limit < 1e6) {
    return error(Code::kNoSpace,
                 "the disk of '{}' has only {} free; set disk_limit, or cache_dir on another disk",
                 directory, format_bytes(space->available));
  }
  return Bytes(static_cast<std::uint64_t>(limit));
}

Daemon::Daemon(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Result<std::unique_ptr<Daemon>> Daemon::start(DaemonOptions options,
                                              DaemonEnvironment environment) {
  StoreOptions store_options;
  store_options.directory = options.cache_directory;
  // Known when the store is: what it holds already counts as room.
  store_options.disk_limit = Bytes(UINT64_MAX / 4);
  store_options.disk_floor = options.settings.disk_floor;
  store_options.boot_id = options.boot_id;
  auto store =
      TRY(Store::open(store_options, environment.files, environment.clock, environment.log));
  const Bytes disk_limit = TRY(disk_limit_of(options.settings, options.cache_directory,
                                             environment.files, store->stats().allocated));
  store->set_disk_limit(disk_limit);
  auto listener = TRY(io::UnixListener::bind(options.socket_path, 0600));
  const io::FileInfo socket = TRY(environment.files.stat(options.socket_path));
  auto parts =
      std::make_unique<Parts>(std::move(options), environment, std::move(store), disk_limit);
  parts->socket = socket;
  rpc::ServerOptions server_options;
  server_options.thread_name = "rpc";
  server_options.payload_memory =
      Bytes(parts->options.settings.memory_limit.value / limits::kInsertMemoryPart);
  server_options.max_connections =
      static_cast<std::size_t>(parts->options.settings.max_connections);
  parts->server = std::make_unique<rpc::Server>(
      std::move(listener), server_options, environment.clock, environment.log,
      [p = parts.get()](rpc::Peer& peer, rpc::Message& request) {
        return handle_request(p->requests, peer, request);
      },
      [p = parts.get()](rpc::Peer& peer) { connection_closed(p->requests, peer); });
  start_metrics(*parts);
  return std::unique_ptr<Daemon>(new Daemon(std::move(parts)));
}

// Jobs need the daemon more than anybody needs its figures: it runs without, and says so.
void Daemon::start_metrics(Parts& parts) {
  const std::string& address = parts.options.settings.metrics;
  if (address.empty()) return;
  auto server = MetricsServer::start(
      address,
      [&requests = parts.requests]() -> Result<std::string> {
        return metrics_text(TRY(status_text(requests)));
      },
      parts.environment.clock);
  LogSink& sink = parts.environment.log;
  if (!server) {
    return log(sink, LogLevel::kWarning, "no metrics: {}; change the setting 'metrics'",
               server.error().message);
  }
  parts.metrics = *std::move(server);
  log(sink, LogLevel::kInfo, "metrics at '{}'", address);
}

namespace {

void handle(std::deque<Event> events, Control& control) {
  for (Event& event : events) event(control);
}

// Re-verifies what was there before an unclean end of the machine, bit by bit.
void scrub(Store& store, EventQueue& events, const Clock& clock, LogSink& sink,
           std::stop_token stop) {
  io::name_this_thread("scrub");
  Instant next_rescan = clock.now() + limits::kRescanEvery;
  if (store.stats().suspect.value == 0) return;
  while (!stop.stop_requested()) {
    const auto done = store.scrub(8_MiB);
    if (!done) return log(sink, LogLevel::kWarning, "re-verifying: {}", done.error().message);
    // What was found to be right is shown as it goes, not after the last terabyte.
    if (*done || clock.now() >= next_rescan) {
      events.push([](Control& control) { control.rescan(); });
      next_rescan = clock.now() + limits::kRescanEvery;
    }
    if (*done) return;
  }
}

}  // namespace

// Where the socket was removed, alone or with its directory, nobody would find this daemon: it
// listens there anew. Where another daemon does already, this one is not needed any more.
void Daemon::look_at_socket() {
  Parts& p = *parts_;
  const Instant now = p.environment.clock.now();
  if (now < p.next_socket_look) return;
  p.next_socket_look = now + limits::kSocketLook;
  const std::string& path = p.options.socket_path;
  auto found = p.environment.files.stat(path);
  if (found ? found->inode == p.socket.inode && found->device == p.socket.device
            : found.error().code != Code::kNotFound) {
    return;
  }
  auto listener = io::UnixListener::bind(path, 0600);
  if (listener) found = p.environment.files.stat(path);
  if (listener && found) {
    p.server->listen_on(*std::move(listener));
    p.socket = *found;
    log(p.environment.log, LogLevel::kWarning, "the socket '{}' was removed; listening anew", path);
    return;
  }
  const Error why = listener ? std::move(found).error() : std::move(listener).error();
  if (why.code == Code::kInvalid) p.control.stop();
  if (now < p.next_socket_warning) return;
  p.next_socket_warning = now + limits::kWarnAgain;
  log(p.environment.log, LogLevel::kWarning, "the socket '{}' was removed: {}", path, why.message);
}

// One that never ran may have let somebody in, who must not wait for ever.
Daemon::~Daemon() {
  parts_->events.close();
  handle(parts_->events.take({}, Duration(0)), parts_->control);
}

Status Daemon::run_until_stopped(std::stop_token stop) {
  Parts& p = *parts_;
  const Duration idle = p.options.settings.idle_timeout;
  {
    std::jthread scrubber([&p](std::stop_token s) {
      scrub(*p.store, p.events, p.environment.clock, p.environment.log, s);
    });
    while (!stop.stop_requested() && !p.control.stopping() && !p.control.idle(idle)) {
      handle(p.events.take(stop, p.control.turn()), p.control);
      look_at_socket();
    }
  }
  // Whoever is being answered may still need the control thread, and so may a fetching thread.
  std::atomic<bool> quiet = false;
  std::jthread closer([&] {
    if (p.metrics) p.metrics->stop();
    p.server->stop();
    p.pool.stop();
    quiet = true;
    p.events.push([](Control&) {});
  });
  while (!quiet) handle(p.events.take({}, std::chrono::milliseconds(100)), p.control);
  closer.join();
  p.events.close();
  handle(p.events.take({}, Duration(0)), p.control);
  p.store->close_cleanly();
  return {};
}

}  // namespace quiver::cache
