#include "rpc/server.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "io/process.h"

namespace quiver::rpc {
namespace {

// How often finished threads are joined, and how long to leave a full table of descriptors alone.
constexpr Duration kReapPeriod = std::chrono::seconds(1);
constexpr std::chrono::milliseconds kPause{50};
constexpr Bytes kSmallPayload = 64_KiB;  // is not counted
constexpr Duration kComplainAgain = std::chrono::minutes(1);

}  // namespace

// One connection and its thread. Made by the accepting thread; the thread ends by itself or when
// stop() closes the reading side; joined by reap() or stop().
struct Server::Slot {
  Slot(io::UnixSocket socket, Bytes payload_limit) : connection(std::move(socket), payload_limit) {}

  Connection connection;
  Peer peer;
  std::atomic<bool> finished = false;
  std::jthread thread;  // last: it is joined before the rest goes
};

Server::Server(io::UnixListener listener, ServerOptions options, const Clock& clock, LogSink& log,
               Handler handler, OnClose on_close)
    : listener_(std::move(listener)),
      options_(std::move(options)),
      clock_(clock),
      log_(log),
      handler_(std::move(handler)),
      on_close_(std::move(on_close)) {
  CHECK(options_.max_connections > 0);
  start_accepting();
}

void Server::start_accepting() {
  acceptor_ = std::jthread([this](std::stop_token stop) { accept_loop(std::move(stop)); });
}

void Server::stop_accepting() {
  acceptor_.request_stop();
  listener_.shutdown();
  if (acceptor_.joinable()) acceptor_.join();
}

void Server::listen_on(io::UnixListener listener) {
  stop_accepting();
  listener_ = std::move(listener);
  start_accepting();
}

Server::~Server() {
  stop();
}

void Server::stop() {
  stop_accepting();
  // Nobody adds any more.
  Slots slots = slots_.with([](Slots& s) { return std::exchange(s, {}); });
  for (auto& slot : slots) {
    slot->thread.request_stop();
    slot->connection.stop_reading();
  }
  slots.clear();  // joins
}

Bytes Server::payload_bytes() const {
  return Bytes(payloads_.with([](std::uint64_t here) { return here; }));
}

std::size_t Server::connections() const {
  return slots_.with([](const Slots& slots) {
    return static_cast<std::size_t>(std::count_if(
        slots.begin(), slots.end(), [](const auto& slot) { return !slot->finished.load(); }));
  });
}

void Server::accept_loop(std::stop_token stop) {
  io::name_this_thread(options_.thread_name + "-accept");
  while (!stop.stop_requested()) {
    auto socket = listener_.accept(clock_.now() + kReapPeriod);
    reap();
    if (socket) {
      admit(*std::move(socket));
    } else if (socket.error().code == Code::kUnavailable) {
      return;
    } else if (socket.error().code != Code::kTimeout) {
      complain(socket.error().message);
      std::this_thread::sleep_for(kPause);
    }
  }
}

void Server::reap() {
  Slots finished;
  slots_.with([&](Slots& slots) {
    for (auto it = slots.begin(); it != slots.end();) {
      const auto next = std::next(it);
      if ((*it)->finished.load()) finished.splice(finished.end(), slots, it);
      it = next;
    }
  });
}

void Server::admit(io::UnixSocket socket) {
  if (connections() >= options_.max_connections) return refuse(std::move(socket));
  auto credentials = socket.peer();
  if (!credentials) {
    return log(log_, LogLevel::kWarning, "rpc: {}", credentials.error().message);
  }
  auto slot = std::make_unique<Slot>(std::move(socket), options_.payload_limit);
  Slot& s = *slot;
  s.peer.number = ++accepted_;
  s.peer.credentials = *credentials;
  slots_.with([&](Slots& slots) { slots.push_back(std::move(slot)); });
  // Only stop() and reap() remove slots, the one after this thread, the other on it.
  s.thread = std::jthread([this, &s](std::stop_token stop) {
    s.peer.stop = std::move(stop);
    serve(s);
  });
}

void Server::refuse(io::UnixSocket socket) {
  Connection connection(std::move(socket), options_.payload_limit);
  const Error why = error(Code::kNoSpace,
                          "the daemon already has max_connections = {} connections; raise that, or "
                          "run fewer processes over this cache",
                          options_.max_connections);
  // A deadline that is over: what does not fit an empty socket at once is not worth waiting for.
  static_cast<void>(
      connection.send(0, kFlagError, 0, as_bytes(encode_error(why)), {}, clock_.now()));
  complain(fmt::format("refused a connection: max_connections = {} is reached",
                       options_.max_connections));
}

// Those who are refused come again and again.
void Server::complain(const std::string& trouble) {
  const Instant now = clock_.now();
  if (now < next_complaint_) return;
  next_complaint_ = now + kComplainAgain;
  log(log_, LogLevel::kWarning, "rpc: {}", trouble);
}

void Server::serve(Slot& slot) {
  io::name_this_thread(fmt::format("{}-{}", options_.thread_name, slot.peer.number));
  serve_requests(slot);
  slot.connection.shutdown();
  if (on_close_) on_close_(slot.peer);
  slot.peer.session.reset();
  slot.finished.store(true);
}

void Server::serve_requests(Slot& slot) {
  Connection& connection = slot.connection;
  while (!slot.peer.stop.stop_requested()) {
    if (!connection.wait(Instant::max())) return;
    auto request = connection.receive(clock_.now() + options_.frame_timeout,
                                      [&](Bytes size, Instant deadline) {
                                        return admit_payload(size, deadline, slot.peer.stop);
                                      });
    if (slot.peer.stop.stop_requested()) return;
    const Status done = request ? answer(connection, *request, handle(slot.peer, *request))
                                : Status(std::move(request).error());
    if (done) continue;
    if (done.error().code != Code::kUnavailable) {
      log(log_, LogLevel::kWarning, "rpc: connection {} of pid {} ends: {}", slot.peer.number,
          slot.peer.credentials.pid, done.error().message);
    }
    return;
  }
}

Result<std::shared_ptr<void>> Server::admit_payload(Bytes size, Instant deadline,
                                                    std::stop_token stop) {
  if (size <= kSmallPayload) return std::shared_ptr<void>();
  const bool admitted = payloads_.wait_for(
      stop, deadline - clock_.now(),
      [&](std::uint64_t here) {
        return here == 0 || here + size.value <= options_.payload_memory.value;
      },
      [&](std::uint64_t& here) { here += size.value; });
  if (!admitted) {
    return error(Code::kNoSpace, "there is no memory for a message of {} bytes", size.value);
  }
  return std::shared_ptr<void>(nullptr, [this, size](void*) {
    payloads_.change([&](std::uint64_t& here) { here -= size.value; });
  });
}

Result<Reply> Server::handle(Peer& peer, Message& request) {
  if (!request.fds_lost) return handler_(peer, request);
  return error(Code::kNoSpace, "the daemon's limit of open files is reached");
}

Status Server::answer(Connection& connection, const Message& request, Result<Reply> reply) {
  const Instant deadline = clock_.now() + options_.frame_timeout;
  if (reply) {
    std::vector<int> fds;
    for (const io::Fd& fd : reply->fds) fds.push_back(fd.get());
    Status sent =
        connection.send(request.type, 0, request.id, as_bytes(reply->payload), fds, deadline);
    if (sent || connection.broken()) return sent;
    reply = std::move(sent).error();  // refused before its first byte: too large
  }
  const std::string why = encode_error(reply.error());
  return connection.send(request.type, kFlagError, request.id, as_bytes(why), {}, deadline);
}

}  // namespace quiver::rpc
