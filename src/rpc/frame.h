// The 24 bytes before each payload (docs/formats/rpc.md), and errors as payloads.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/hash.h"
#include "base/result.h"
#include "base/units.h"

namespace quiver::rpc {

inline constexpr std::size_t kHeaderSize = 24;
inline constexpr std::uint16_t kFlagError = 1;  // the payload is an encoded Error

struct FrameHeader {
  std::uint16_t type = 0;
  std::uint16_t flags = 0;
  std::uint64_t id = 0;
  std::uint32_t payload_size = 0;
  std::uint16_t fd_count = 0;

  bool operator==(const FrameHeader&) const = default;
};

std::array<std::byte, kHeaderSize> encode_header(const FrameHeader& header);
// kVersion when the magic is another, kCorrupt when the frame is longer than the limit or
// malformed.
Result<FrameHeader> decode_header(ByteSpan bytes, Bytes payload_limit);

// The numbers of codes on the wire never change, whatever becomes of the enum.
std::string encode_error(const Error& error);
// The error that the bytes hold; a kCorrupt one when they hold none.
Error decode_error(ByteSpan payload);

}  // namespace quiver::rpc
