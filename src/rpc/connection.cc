#include "rpc/connection.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quiver::rpc {
namespace {

constexpr std::size_t kOnePiece = 16 << 10;  // up to here a copy is cheaper than a second send
constexpr std::size_t kGrowth = std::size_t{1} << 20;  // of a payload that is still arriving

Error fds_lost_error() {
  return error(Code::kNoSpace,
               "a message's descriptors were lost: the limit of open files is reached");
}

Error broken_error() {
  return error(Code::kUnavailable, "the connection has broken before");
}

}  // namespace

// Holds the connection for one call. A second one at the same time is a bug of the caller.
class Connection::Use {
 public:
  explicit Use(Connection& c) : c_(c) { CHECK(!c_.in_use_.exchange(true)); }
  ~Use() { c_.in_use_.store(false); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  template <class R>
  R keep_or_break(R result) {
    if (!result) c_.broken_.store(true);
    return result;
  }

 private:
  Connection& c_;
};

Connection::Connection(io::UnixSocket socket, Bytes payload_limit)
    : socket_(std::move(socket)), payload_limit_(payload_limit) {}

Result<std::unique_ptr<Connection>> Connection::connect(const std::string& path, Instant deadline,
                                                        Bytes payload_limit) {
  io::UnixSocket socket = TRY(io::UnixSocket::connect(path, deadline));
  return std::make_unique<Connection>(std::move(socket), payload_limit);
}

Status Connection::send(const Message& message, Instant deadline) {
  std::vector<int> fds;
  for (const io::Fd& fd : message.fds) fds.push_back(fd.get());
  return send(message.type, message.flags, message.id, as_bytes(message.payload), fds, deadline);
}

Status Connection::send(std::uint16_t type, std::uint16_t flags, std::uint64_t id, ByteSpan payload,
                        std::span<const int> fds, Instant deadline) {
  Use use(*this);
  const FrameHeader header = TRY(frame(type, flags, id, payload, fds));
  return use.keep_or_break(send_frame(header, payload, fds, deadline));
}

Result<FrameHeader> Connection::frame(std::uint16_t type, std::uint16_t flags, std::uint64_t id,
                                      ByteSpan payload, std::span<const int> fds) const {
  if (broken_.load()) return broken_error();
  if (fds.size() > io::kMaxFdsPerMessage) {
    return error(Code::kInvalid, "cannot send {} descriptors in a message; at most {}", fds.size(),
                 io::kMaxFdsPerMessage);
  }
  if (payload.size() > std::min<std::uint64_t>(payload_limit_.value, UINT32_MAX)) {
    return error(Code::kInvalid, "cannot send a message of {} bytes; at most {}", payload.size(),
                 payload_limit_.value);
  }
  return FrameHeader{.type = type,
                     .flags = flags,
                     .id = id,
                     .payload_size = static_cast<std::uint32_t>(payload.size()),
                     .fd_count = static_cast<std::uint16_t>(fds.size())};
}

Status Connection::send_frame(const FrameHeader& header, ByteSpan payload, std::span<const int> fds,
                              Instant deadline) {
  const auto head = encode_header(header);
  if (payload.size() > kOnePiece) {
    if (Status s = socket_.send(head, fds, deadline); !s) return s;
    return socket_.send(payload, {}, deadline);
  }
  std::vector<std::byte> piece(head.begin(), head.end());
  piece.insert(piece.end(), payload.begin(), payload.end());
  return socket_.send(piece, fds, deadline);
}

Status Connection::wait(Instant deadline) {
  Use use(*this);
  if (broken_.load()) return broken_error();
  return socket_.wait_readable(deadline);
}

Result<Message> Connection::receive(Instant deadline, const Admission& admission) {
  Use use(*this);
  if (broken_.load()) return broken_error();
  return use.keep_or_break(receive_frame(deadline, admission));
}

Result<Message> Connection::receive_frame(Instant deadline, const Admission& admission) {
  std::array<std::byte, kHeaderSize> head;
  Message m;
  Status all = socket_.receive(head, m.fds, deadline);
  const bool lost = !all && all.error().code == Code::kNoSpace;  // its descriptors, not its bytes
  if (!all && !lost) return std::move(all).error();
  const FrameHeader h = TRY(decode_header(head, payload_limit_));
  if (admission) m.admitted = TRY(admission(Bytes(h.payload_size), deadline));
  while (m.payload.size() < h.payload_size) {
    const std::size_t had = m.payload.size();
    m.payload.resize(std::min<std::size_t>(h.payload_size, had + std::max(kGrowth, had)));
    const auto room = std::as_writable_bytes(std::span(m.payload)).subspan(had);
    if (Status s = socket_.receive(room, m.fds, deadline); !s) {
      // Its header came: the message, not the connection, is what ended here.
      if (s.error().code != Code::kUnavailable) return std::move(s).error();
      return error(Code::kShort, "a message ended after {} of {} bytes", had, h.payload_size);
    }
    if (m.fds.size() > h.fd_count) break;
  }
  m.fds_lost = lost;
  if (!lost && m.fds.size() != h.fd_count) {
    return error(Code::kCorrupt, "a message announces {} descriptors and brings {}", h.fd_count,
                 m.fds.size());
  }
  m.type = h.type;
  m.flags = h.flags;
  m.id = h.id;
  return m;
}

Result<Message> Connection::call(std::uint16_t type, std::string_view payload,
                                 std::span<const int> fds, Instant deadline,
                                 const Patience* patience) {
  Use use(*this);
  const FrameHeader header = TRY(frame(type, 0, last_id_ + 1, as_bytes(payload), fds));
  last_id_ = header.id;
  Status sent = send_frame(header, as_bytes(payload), fds, deadline);
  // A server that refuses us says why before it closes.
  const bool told = !sent && sent.error().code == Code::kUnavailable;
  if (!sent && !told) return use.keep_or_break(std::move(sent)).error();
  if (patience != nullptr) {
    if (Status s = use.keep_or_break(wait_patiently(deadline, *patience)); !s) {
      return std::move(s).error();
    }
  }
  Result<Message> reply = use.keep_or_break(receive_frame(deadline));
  if (!reply) return told ? std::move(sent).error() : std::move(reply).error();
  const bool is_error = (reply->flags & kFlagError) != 0;
  if (told || reply->id != header.id) broken_.store(true);
  if (is_error && (reply->id == header.id || reply->id == 0)) {
    return decode_error(as_bytes(reply->payload));
  }
  if (told) return std::move(sent).error();
  if (reply->id != header.id) {
    return error(Code::kCorrupt, "the reply to request {} is for {}", header.id, reply->id);
  }
  if (reply->fds_lost) return fds_lost_error();
  return reply;
}

Status Connection::wait_patiently(Instant deadline, const Patience& patience) {
  for (;;) {
    const Instant slice = std::min(deadline, patience.clock.now() + patience.slice);
    Status readable = socket_.wait_readable(slice);
    if (readable || readable.error().code != Code::kTimeout) return readable;
    if (slice == deadline || !patience.go_on()) return readable;
  }
}

void Connection::shutdown() {
  broken_.store(true);
  socket_.shutdown();
}

void Connection::stop_reading() {
  socket_.shutdown_reading();
}

}  // namespace quiver::rpc
