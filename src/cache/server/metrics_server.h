// MetricsServer: answers GET /metrics, for Prometheus and for people with curl.
//
// A few lines of HTTP/1.1 of our own: the library that was meant for it serves no Unix sockets in
// the version that Debian 12 has, and reads header lines of any length.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "io/socket.h"

namespace quiver::cache {

// Owns the socket and limits::kScrapers threads, from start() to stop() or its end. Each thread
// serves one connection at a time, for limits::kScrapePatience at most: one request of at most
// limits::kScrapeRequest bytes, one answer. Who comes meanwhile waits in the kernel's queue.
// Failure: whatever comes is answered by a status of HTTP or by the end of its connection, and
// touches nobody else.
class MetricsServer {
 public:
  // What is served: any thread calls it, several at once. An error is a 503.
  using Page = std::function<Result<std::string>()>;

  // `address`: 127.0.0.1:PORT, [::1]:PORT, or the path of a Unix socket, which gets mode 0600.
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address, Page page,
                                                      const Clock& clock);
  ~MetricsServer() { stop(); }
  void stop();  // idempotent; waits for the threads

 private:
  using Listener = std::variant<io::UnixListener, io::LoopbackListener>;
  MetricsServer(Listener listener, Page page, const Clock& clock);
  void serve(std::stop_token stop);
  void answer(io::UnixSocket socket);
  std::string response(const std::string& request) const;

  Listener listener_;
  const Page page_;
  const Clock& clock_;
  std::vector<std::jthread> threads_;
};

}  // namespace quiver::cache
