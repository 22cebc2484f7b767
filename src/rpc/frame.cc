#include "rpc/frame.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "io/socket.h"
#include "rpc/wire.h"

namespace quiver::rpc {
namespace {

constexpr std::uint32_t kMagic = 0x31525651;  // "QVR1", little-endian

// The position is the number on the wire: append only.
constexpr std::array kCodes = {
    Code::kInvalid,     Code::kNotFound,    Code::kDenied,  Code::kExpired,   Code::kThrottled,
    Code::kUnreachable, Code::kTimeout,     Code::kChanged, Code::kShort,     Code::kCorrupt,
    Code::kNoSpace,     Code::kUnavailable, Code::kVersion, Code::kCancelled, Code::kIo,
};

// The parts of the error; a Result<Error> could not tell what it read from why it could not.
Result<std::pair<Code, std::string>> read_error(ByteSpan payload) {
  Reader r(payload);
  const std::uint16_t number = TRY(r.u16());
  std::string message = TRY(r.string());
  if (Status s = r.done(); !s) return std::move(s).error();
  // A newer peer may know more codes; its sentence still tells.
  return std::pair(number < kCodes.size() ? kCodes[number] : Code::kIo, std::move(message));
}

}  // namespace

std::array<std::byte, kHeaderSize> encode_header(const FrameHeader& header) {
  Writer w;
  w.u32(kMagic).u16(header.type).u16(header.flags).u64(header.id).u32(header.payload_size);
  w.u16(header.fd_count).u16(0);
  const std::string bytes = w.take();
  std::array<std::byte, kHeaderSize> out;
  CHECK(bytes.size() == out.size());
  std::memcpy(out.data(), bytes.data(), out.size());
  return out;
}

Result<FrameHeader> decode_header(ByteSpan bytes, Bytes payload_limit) {
  Reader r(bytes);
  if (TRY(r.u32()) != kMagic) {
    return error(Code::kVersion, "the peer does not speak this version of the protocol (QVR1)");
  }
  FrameHeader h;
  h.type = TRY(r.u16());
  h.flags = TRY(r.u16());
  h.id = TRY(r.u64());
  h.payload_size = TRY(r.u32());
  h.fd_count = TRY(r.u16());
  const std::uint16_t reserved = TRY(r.u16());
  if (Status s = r.done(); !s) return std::move(s).error();
  if (h.payload_size > payload_limit.value) {
    return error(Code::kCorrupt, "a message of {} bytes is above the limit of {}", h.payload_size,
                 payload_limit.value);
  }
  if (h.fd_count > io::kMaxFdsPerMessage || reserved != 0) {
    return error(Code::kCorrupt, "a message with {} descriptors and {} in its reserved bytes",
                 h.fd_count, reserved);
  }
  return h;
}

std::string encode_error(const Error& error) {
  const auto place = std::find(kCodes.begin(), kCodes.end(), error.code);
  CHECK(place != kCodes.end());
  const auto number = static_cast<std::uint16_t>(place - kCodes.begin());
  return Writer().u16(number).string(error.message).take();
}

Error decode_error(ByteSpan payload) {
  auto decoded = read_error(payload);
  if (!decoded) return std::move(decoded).error().context("an error reply that cannot be read");
  return Error{decoded->first, std::move(decoded->second)};
}

}  // namespace quiver::rpc
