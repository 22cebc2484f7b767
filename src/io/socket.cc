#include "io/socket.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/check.h"

namespace quiver::io {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return error(Code::kInvalid, "the socket path '{}' must have 1 to {} bytes", path,
                 sizeof address.sun_path - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<Fd> make_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return os_error(errno, "making a socket");
  return fd;
}

// 0 or errno.
int connect_now(int fd, const sockaddr_un& address) {
  for (;;) {
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

// What poll(2) says, or kTimeout.
Result<short> wait_for(int fd, short events, Instant deadline, std::string_view doing) {
  for (;;) {
    const Instant now = std::chrono::steady_clock::now();
    if (deadline <= now) return error(Code::kTimeout, "{}: the deadline passed", doing);
    const auto left = (deadline - now).count();
    const timespec timeout{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
    pollfd p{.fd = fd, .events = events, .revents = 0};
    const int n = ::ppoll(&p, 1, &timeout, nullptr);
    if (n > 0) return p.revents;
    if (n < 0 && errno != EINTR) return os_error(errno, doing);
  }
}

// A connection that has come to this listener.
Result<UnixSocket> accept_on(int listener, std::string_view where, Instant deadline) {
  for (;;) {
    Fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return UnixSocket(std::move(fd));
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EMFILE || errno == ENFILE) {
      return error(Code::kNoSpace, "accepting on {}: the limit of open files is reached", where);
    }
    // Of a TCP socket that is shut down it is no listener any more.
    if (errno != EAGAIN && errno != EINVAL) {
      return os_error(errno, fmt::format("accepting on {}", where));
    }
    const bool shut = errno == EINVAL;
    const short events = shut ? POLLHUP : TRY(wait_for(listener, POLLIN, deadline, "accepting"));
    // Of a Unix listener that is shut down accept() keeps saying EAGAIN.
    if ((events & POLLHUP) != 0) {
      return error(Code::kUnavailable, "accepting on {}: it is shut down", where);
    }
  }
}

bool gone(int errno_value) {
  return errno_value == EPIPE || errno_value == ECONNRESET || errno_value == ENOTCONN;
}

// Takes over the descriptors of a received message.
void collect(msghdr& message, std::vector<Fd>& fds) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

using Control = std::array<char, CMSG_SPACE(kMaxFdsPerMessage * sizeof(int))>;

void attach(msghdr& message, std::span<const int> fds, Control& control) {
  control.fill(0);
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
}

std::uint64_t socket_inode(const std::string& path) {
  struct stat s {};
  return ::lstat(path.c_str(), &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

}  // namespace

Result<UnixSocket> UnixSocket::connect(const std::string& path, Instant deadline) {
  const sockaddr_un address = TRY(address_of(path));
  Fd fd = TRY(make_socket());
  for (;;) {
    const int failed = connect_now(fd.get(), address);
    if (failed == 0) return UnixSocket(std::move(fd));
    if (failed == ENOENT || failed == ENOTDIR || failed == ECONNREFUSED) {
      return error(Code::kUnreachable, "nobody listens on {}", path);
    }
    if (failed != EAGAIN) return os_error(failed, fmt::format("connecting to {}", path));
    // The queue of the listener is full, and there is nothing to poll for.
    if (std::chrono::steady_clock::now() >= deadline) {
      return error(Code::kTimeout, "connecting to {}: the deadline passed", path);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Result<std::pair<UnixSocket, UnixSocket>> UnixSocket::pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0) {
    return os_error(errno, "making a pair of sockets");
  }
  return std::pair(UnixSocket(Fd(fds[0])), UnixSocket(Fd(fds[1])));
}

Status UnixSocket::send(ByteSpan data, std::span<const int> fds, Instant deadline) {
  if (fds.size() > kMaxFdsPerMessage || (data.empty() && !fds.empty())) {
    return error(Code::kInvalid, "cannot send {} descriptors with {} bytes; at most {}, with data",
                 fds.size(), data.size(), kMaxFdsPerMessage);
  }
  Control control;
  while (!data.empty()) {
    iovec part{.iov_base = const_cast<std::byte*>(data.data()), .iov_len = data.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!fds.empty()) attach(message, fds, control);
    const auto n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      data = data.subspan(static_cast<std::size_t>(n));
      fds = {};  // they went with the first byte
    } else if (errno == EAGAIN) {
      TRY(wait_for(fd_.get(), POLLOUT, deadline, "sending"));
    } else if (gone(errno)) {
      return error(Code::kUnavailable, "sending: the other end is closed");
    } else if (errno == ETOOMANYREFS) {
      return error(Code::kNoSpace, "sending {} descriptors: too many are under way", fds.size());
    } else if (errno != EINTR) {
      return os_error(errno, "sending");
    }
  }
  return {};
}

Result<std::size_t> UnixSocket::receive_some(MutableByteSpan out, Instant deadline) {
  for (;;) {
    const auto n = ::recv(fd_.get(), out.data(), out.size(), MSG_DONTWAIT);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == EINTR) continue;
    if (gone(errno)) return std::size_t{0};
    if (errno != EAGAIN) return os_error(errno, "receiving");
    TRY(wait_for(fd_.get(), POLLIN, deadline, "receiving"));
  }
}

Status UnixSocket::receive(MutableByteSpan out, std::vector<Fd>& fds, Instant deadline) {
  const std::size_t had = fds.size();
  const auto refuse = [&](Code code, std::string_view why) -> Status {
    fds.resize(had);
    return error(code, "receiving descriptors: {}", why);
  };
  alignas(cmsghdr) Control control;
  std::size_t done = 0;
  bool lost = false;
  while (done < out.size()) {
    iovec part{.iov_base = out.data() + done, .iov_len = out.size() - done};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const auto n = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      TRY(wait_for(fd_.get(), POLLIN, deadline, "receiving"));
      continue;
    }
    if (n < 0 && !gone(errno)) return os_error(errno, "receiving");
    if (n <= 0) {
      if (done == 0) return error(Code::kUnavailable, "receiving: the other end is closed");
      return error(Code::kShort, "receiving: closed after {} of {} bytes", done, out.size());
    }
    collect(message, fds);
    lost = lost || (message.msg_flags & MSG_CTRUNC) != 0;
    if (fds.size() - had > kMaxFdsPerMessage) {
      return refuse(Code::kInvalid, "more than fit a message");
    }
    done += static_cast<std::size_t>(n);
  }
  if (lost) return refuse(Code::kNoSpace, "the limit of open files is reached");
  return {};
}

Status UnixSocket::wait_readable(Instant deadline) const {
  TRY(wait_for(fd_.get(), POLLIN, deadline, "waiting for a message"));
  return {};
}

Result<PeerCredentials> UnixSocket::peer() const {
  ucred c{};
  socklen_t size = sizeof c;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &c, &size) < 0) {
    return os_error(errno, "asking who is at the other end");
  }
  return PeerCredentials{.uid = c.uid, .gid = c.gid, .pid = c.pid};
}

void UnixSocket::shutdown() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}
void UnixSocket::shutdown_sending() {
  ::shutdown(fd_.get(), SHUT_WR);
}

void UnixSocket::shutdown_reading() {
  ::shutdown(fd_.get(), SHUT_RD);
}

Result<UnixListener> UnixListener::bind(const std::string& path, mode_t mode) {
  const sockaddr_un address = TRY(address_of(path));
  UnixListener listener;
  listener.fd_ = TRY(make_socket());
  const auto bind_now = [&] {
    const auto* a = reinterpret_cast<const sockaddr*>(&address);
    return ::bind(listener.fd_.get(), a, sizeof address) == 0 ? 0 : errno;
  };
  int failed = bind_now();
  if (failed == EADDRINUSE) {
    if (socket_inode(path) == 0) {
      return error(Code::kInvalid, "cannot listen on {}: it exists and is no socket", path);
    }
    const Fd probe = TRY(make_socket());
    if (connect_now(probe.get(), address) != ECONNREFUSED) {
      return error(Code::kInvalid, "cannot listen on {}: another process does", path);
    }
    ::unlink(path.c_str());
    failed = bind_now();
  }
  if (failed != 0) return os_error(failed, fmt::format("listening on {}", path));
  listener.path_ = path;
  listener.inode_ = socket_inode(path);
  // The mode comes before listen(): nobody can connect in between.
  if (::chmod(path.c_str(), mode) < 0 || ::listen(listener.fd_.get(), SOMAXCONN) < 0) {
    return os_error(errno, fmt::format("listening on {}", path));
  }
  return listener;
}

UnixListener::~UnixListener() {
  if (inode_ != 0 && socket_inode(path_) == inode_) ::unlink(path_.c_str());
}

UnixListener::UnixListener(UnixListener&& o) noexcept
    : fd_(std::move(o.fd_)), path_(std::move(o.path_)), inode_(std::exchange(o.inode_, 0)) {}

UnixListener& UnixListener::operator=(UnixListener&& o) noexcept {
  UnixListener taken(std::move(o));
  std::swap(fd_, taken.fd_);
  std::swap(path_, taken.path_);
  std::swap(inode_, taken.inode_);
  return *this;
}

Result<UnixSocket> UnixListener::accept(Instant deadline) {
  return accept_on(fd_.get(), path_, deadline);
}

void UnixListener::shutdown() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

Result<LoopbackListener> LoopbackListener::bind(std::uint16_t port, bool ipv6) {
  sockaddr_storage address{};
  socklen_t size = 0;
  const auto at = [](std::uint16_t p, bool six) {
    return fmt::format("{}:{}", six ? "[::1]" : "127.0.0.1", p);
  };
  if (ipv6) {
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six.sin6_family = AF_INET6;
    six.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    six.sin6_port = htons(port);
    size = sizeof six;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    four.sin_port = htons(port);
    size = sizeof four;
  }
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  Fd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return os_error(errno, "making a socket");
  const int on = 1;  // else a daemon that is started anew waits for its predecessor's connections
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), generic, size) < 0 || ::listen(fd.get(), SOMAXCONN) < 0) {
    if (errno != EADDRINUSE) return os_error(errno, fmt::format("listening on {}", at(port, ipv6)));
    return error(Code::kInvalid, "cannot listen on {}: another process does", at(port, ipv6));
  }
  if (::getsockname(fd.get(), generic, &size) < 0) return os_error(errno, "listening");
  const in_port_t bound = ipv6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                               : reinterpret_cast<sockaddr_in&>(address).sin_port;
  return LoopbackListener(std::move(fd), ntohs(bound));
}

Result<UnixSocket> LoopbackListener::accept(Instant deadline) {
  return accept_on(fd_.get(), "the loopback interface", deadline);
}

void LoopbackListener::shutdown() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

}  // namespace quiver::io
