// Serves requests on a Unix socket: one named, blocking thread per connection, bounded in number.
#pragma once

#include <any>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/result.h"
#include "rpc/connection.h"

namespace quiver::rpc {

struct ServerOptions {
  std::size_t max_connections = 1024;  // at least 1; one more is refused with kNoSpace
  Bytes payload_limit = kDefaultPayloadLimit;
  // For the large payloads of all requests together; others wait, and a larger one comes alone.
  Bytes payload_memory = kDefaultPayloadLimit;
  // A peer that stalls in the middle of a frame, or does not take its reply, is dropped after this.
  Duration frame_timeout = std::chrono::seconds(30);
  std::string thread_name = "rpc";  // at most 10 characters; the connection's number is appended
};

// Who is at the other end, as long as its connection lives. Used by that connection's thread only.
struct Peer {
  std::uint64_t number = 0;  // of the connection, from 1; never used twice in a server's life
  io::PeerCredentials credentials{};
  std::any session;      // the handler's own, empty at first
  std::stop_token stop;  // stops when the server does: a handler that waits must heed it
};

struct Reply {
  std::string payload;
  std::vector<io::Fd> fds;  // closed once sent
};

// Owns the listener, the threads and the connections. Starts when made; ~Server stops it.
//
// Threads: the handler is called on the connection's thread, so for one peer never twice at once,
// for several peers concurrently. connections() may come from any thread, stop() from one at a time
// that is no handler. Failure: an Error of the handler is the reply; a malformed frame, a stalled
// or a dead peer ends that connection only. on_close is called once for each peer, after its last
// request. Stopping: stop token, no more accepts and receives, the requests being handled are
// answered (for frame_timeout at most), join. The clock must run with the kernel's, which keeps the
// deadlines.
class Server {
 public:
  using Handler = std::function<Result<Reply>(Peer& peer, Message& request)>;
  using OnClose = std::function<void(Peer& peer)>;

  Server(io::UnixListener listener, ServerOptions options, const Clock& clock, LogSink& log,
         Handler handler, OnClose on_close);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void stop();  // idempotent
  // Accepts here from now on, and no more there: for a socket that was removed. Who is connected
  // stays so. As stop(): from one thread at a time, and none after it.
  void listen_on(io::UnixListener listener);
  std::size_t connections() const;  // being served now
  Bytes payload_bytes() const;      // of the large payloads that are being handled now

 private:
  struct Slot;
  using Slots = std::list<std::unique_ptr<Slot>>;

  void start_accepting();
  void stop_accepting();
  void accept_loop(std::stop_token stop);
  void admit(io::UnixSocket socket);
  void refuse(io::UnixSocket socket);
  void complain(const std::string& trouble);
  void serve(Slot& slot);
  void serve_requests(Slot& slot);
  Result<std::shared_ptr<void>> admit_payload(Bytes size, Instant deadline, std::stop_token stop);
  Result<Reply> handle(Peer& peer, Message& request);
  Status answer(Connection& connection, const Message& request, Result<Reply> reply);
  void reap();

  io::UnixListener listener_;
  const ServerOptions options_;
  const Clock& clock_;
  LogSink& log_;
  const Handler handler_;
  const OnClose on_close_;
  Guarded<std::uint64_t> payloads_{0};  // bytes of the large ones that are here
  Guarded<Slots> slots_;
  std::uint64_t accepted_ = 0;  // by the accepting thread
  Instant next_complaint_{};    // of the accepting thread
  std::jthread acceptor_;
};

}  // namespace quiver::rpc
