// Daemon: the cache of a node, as one object. apps/quiverd wires it; tests run it in-process.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/quiver_settings.h"
#include "base/result.h"
#include "io/file.h"
#include "io/http.h"

namespace quiver::cache {

inline constexpr const char* kSoftware = "quiver-cache 0.1.0";

struct DaemonOptions {
  Settings settings;
  std::string cache_directory, socket_path;
  std::uint32_t uid = 0;  // whom it serves: its own user
  std::uint64_t pid = 0;  // for status
  std::string boot_id;    // of the machine
};

struct DaemonEnvironment {
  io::Files& files;
  io::HttpTransport& http;
  Clock& clock;
  LogSink& log;
};

// The disk limit that these settings mean on this disk: by default the smaller of 20 % of it and
// what leaves 15 % free (what the cache holds already counts as free).
Result<Bytes> disk_limit_of(const Settings& settings, const std::string& directory,
                            io::Files& files, Bytes held);

// Owns the store, the socket, the fetching threads and the control state. Lives from start() to the
// end of run_until_stopped().
// Threads: run_until_stopped() makes its caller the control thread; between start() and it requests
// are accepted but not answered. Nothing else may be called meanwhile.
// Failure: start() is kUnavailable when another daemon has the directory. Afterwards a failing disk
// or origin degrades it and is reported by its status; nothing ends it but a stop.
class Daemon {
 public:
  static Result<std::unique_ptr<Daemon>> start(DaemonOptions options,
                                               DaemonEnvironment environment);
  ~Daemon();

  // Returns after a stop, a stop request of a client, or idle_timeout without a session; everything
  // is then closed cleanly.
  Status run_until_stopped(std::stop_token stop);

 private:
  struct Parts;
  explicit Daemon(std::unique_ptr<Parts> parts);
  static void start_metrics(Parts& parts);
  void look_at_socket();
  std::unique_ptr<Parts> parts_;
};

}  // namespace quiver::cache
