// quiverd: the daemon of a node. Wires the parts and waits for a signal.
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <thread>

#include "cache/client/user_settings.h"
#include "cache/server/server.h"
#include "exit_status.h"
#include "io/capped_log.h"
#include "io/process.h"

namespace quiver {
namespace {

constexpr const char* kUsage =
    "quiverd: the Quiver cache daemon\n"
    "\n"
    "  quiverd --cache-dir DIR --socket PATH [--SETTING VALUE]...\n"
    "\n"
    "Settings: disk-limit, disk-floor, memory-limit, window, fetch-concurrency, max-connections,\n"
    "rate-limit, verify, metrics, idle-timeout, log-level; `quiver explain` says what each means.\n"
    "It is started by itself where it is needed, serves its own user only, and stops on SIGTERM,\n"
    "SIGINT or `quiver stop`.\n";

// "--disk-limit 20GB" and "--disk-limit=20GB" become disk_limit → 20GB.
Result<std::map<std::string, std::string>> arguments_of(int argc, char** argv) {
  std::map<std::string, std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (!name.starts_with("--")) {
      return error(Code::kInvalid, "'{}' is no option; options look like --cache-dir DIR", name);
    }
    std::string value;
    if (const auto equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      return error(Code::kInvalid, "the option {} needs a value", name);
    }
    name = name.substr(2);
    for (char& c : name) c = c == '-' ? '_' : c;
    arguments[name] = value;
  }
  return arguments;
}

// Waits for a signal, or for the daemon to end by itself.
void wait_for_signals(const sigset_t& signals, std::stop_source& stop, std::stop_token ended) {
  io::name_this_thread("signals");
  while (!ended.stop_requested()) {
    const timespec patience{0, 100'000'000};
    if (sigtimedwait(&signals, nullptr, &patience) > 0) stop.request_stop();
  }
}

// A daemon needs a descriptor for each connection, segment and fetch: as many as it may have, and
// no more connections than that bears.
void use_descriptors(Settings& settings, LogSink& sink) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) < 0) return;
  files.rlim_cur = files.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &files) < 0) ::getrlimit(RLIMIT_NOFILE, &files);
  const auto half = static_cast<int>(std::min<rlim_t>(files.rlim_cur / 2, 1 << 20));
  if (settings.max_connections <= half) return;
  log(sink, LogLevel::kWarning,
      "max_connections is {} instead of {}: the limit of open files (ulimit -n) is {}", half,
      settings.max_connections, files.rlim_cur);
  settings.max_connections = std::max(half, 1);
}

Status run(const std::map<std::string, std::string>& arguments, const sigset_t& signals) {
  cache::DaemonOptions options;
  options.settings =
      TRY(load_settings(arguments, [](const std::string&) { return std::nullopt; }, {}, {}));
  if (Status ok = cache::make_paths_absolute(options.settings); !ok) return ok;
  options.cache_directory = options.settings.cache_dir;
  options.socket_path = options.settings.socket;
  if (options.cache_directory.empty() || options.socket_path.empty()) {
    return error(Code::kInvalid, "both --cache-dir and --socket are needed");
  }
  options.uid = ::getuid();
  options.pid = static_cast<std::uint64_t>(::getpid());
  options.boot_id = TRY(io::boot_id());

  io::RealFiles files;
  RealClock clock;
  io::CappedLog sink(options.settings.log_level, options.cache_directory + "/quiverd.log");
  use_descriptors(options.settings, sink);
  const auto http = io::make_curl_transport(options.settings.fetch_concurrency + 2);
  auto daemon = cache::Daemon::start(options, {files, *http, clock, sink});
  if (!daemon && daemon.error().code == Code::kUnavailable) {
    log(sink, LogLevel::kInfo, "not needed: {}", daemon.error().message);
    return {};
  }
  if (!daemon) return std::move(daemon).error();
  log(sink, LogLevel::kInfo, "serving '{}' at '{}'", options.cache_directory, options.socket_path);

  std::stop_source stop;
  std::jthread signal_thread(
      [&](std::stop_token ended) { wait_for_signals(signals, stop, ended); });
  const Status status = (*daemon)->run_until_stopped(stop.get_token());
  log(sink, LogLevel::kInfo, "stopped");
  return status;
}

}  // namespace
}  // namespace quiver

int main(int argc, char** argv) {
  using namespace quiver;
  if (argc == 2 && (std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::puts(cache::kSoftware);
    return 0;
  }
  // What is large goes back to the system when it is freed, and threads share their heaps: else the
  // process holds far more than memory_limit after a few large items.
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
  mallopt(M_ARENA_MAX, 4);
  // Before any thread is made, so that only the one that waits for them gets them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const auto arguments = arguments_of(argc, argv);
  const Status status = arguments ? run(*arguments, signals) : Status(arguments.error());
  if (status) return 0;
  std::fprintf(stderr, "quiverd: %s\n", status.error().message.c_str());
  return exit_status(status.error().code);
}
