// Stream sockets of this machine, every call under a deadline: Unix ones, which carry bytes and
// descriptors, and TCP on the loopback interface.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "io/file.h"

namespace quiver::io {

inline constexpr std::size_t kMaxFdsPerMessage = 253;  // SCM_MAX_FD

struct PeerCredentials {
  uid_t uid;
  gid_t gid;
  pid_t pid;
};

// One connection, of either kind; peer() and descriptors are a Unix one's. One thread sends and one
// receives at a time; shutdown() may come from any thread and makes both return kUnavailable.
class UnixSocket {
 public:
  explicit UnixSocket(Fd fd) : fd_(std::move(fd)) {}
  // Connects within the deadline. kUnreachable when nobody listens there.
  static Result<UnixSocket> connect(const std::string& path, Instant deadline);
  static Result<std::pair<UnixSocket, UnixSocket>> pair();  // for tests

  // Sends all of it, the descriptors with the first byte. kTimeout past the deadline.
  Status send(ByteSpan data, std::span<const int> fds, Instant deadline);
  // Receives exactly out.size() bytes; descriptors that come along are appended to `fds` (at most
  // `kMaxFdsPerMessage` a message; more are kInvalid). kNoSpace when this process had no room for
  // some: all bytes have been received then, and those that came are closed. kUnavailable when the
  // peer closed before the first byte, kShort when in the middle.
  Status receive(MutableByteSpan out, std::vector<Fd>& fds, Instant deadline);
  // Receives what is there, at least a byte; 0 when the peer has closed. kTimeout past the
  // deadline.
  Result<std::size_t> receive_some(MutableByteSpan out, Instant deadline);
  // Waits until receive() would find a byte or the end. kTimeout past the deadline.
  Status wait_readable(Instant deadline) const;
  Result<PeerCredentials> peer() const;
  void shutdown();
  void shutdown_sending();  // the peer sees the end; receiving goes on
  void shutdown_reading();  // wakes the receiver (end of stream); sending goes on
  int get() const { return fd_.get(); }

 private:
  Fd fd_;
};

// A bound and listening socket; the path is removed on destruction when it is still ours. A socket
// that a dead process left there is replaced; two processes that find it at once must be kept apart
// by their caller's lock. kInvalid when somebody listens there or the path is no socket.
class UnixListener {
 public:
  static Result<UnixListener> bind(const std::string& path, mode_t mode);
  ~UnixListener();
  UnixListener(UnixListener&&) noexcept;
  UnixListener& operator=(UnixListener&&) noexcept;
  // kTimeout when nobody came until the deadline; kUnavailable after shutdown().
  Result<UnixSocket> accept(Instant deadline);
  void shutdown();

 private:
  UnixListener() = default;
  Fd fd_;
  std::string path_;
  std::uint64_t inode_ = 0;
};

// A listening TCP socket that other machines cannot reach; any user of this one can. accept() may
// come from several threads.
class LoopbackListener {
 public:
  // 127.0.0.1, or ::1. Port 0 is any that is free. kInvalid when somebody listens there.
  static Result<LoopbackListener> bind(std::uint16_t port, bool ipv6);
  std::uint16_t port() const { return port_; }
  Result<UnixSocket> accept(Instant deadline);  // as UnixListener's
  void shutdown();

 private:
  LoopbackListener(Fd fd, std::uint16_t port) : fd_(std::move(fd)), port_(port) {}
  Fd fd_;
  std::uint16_t port_;
};

}  // namespace quiver::io
