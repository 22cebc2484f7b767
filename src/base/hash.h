// SHA-256 names content; a 64-bit checksum (XXH3) guards re-reads of it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quiver {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline ByteSpan as_bytes(std::string_view s) {
  return std::as_bytes(std::span(s));
}
inline std::string_view as_text(ByteSpan b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

// 32 bytes of SHA-256. A hash of content is a capability to it: never log one, log its public_id.
struct Sha256 {
  std::array<std::uint8_t, 32> bytes{};

  auto operator<=>(const Sha256&) const = default;
  std::string hex() const;
  static Result<Sha256> from_hex(std::string_view text);
  // The first 64 bits, big-endian: the position in hash order, uniform over content.
  std::uint64_t prefix() const;
};

// SHA-256 of bytes that arrive in pieces. Reusable after finish(). One thread at a time.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(Sha256Stream&&) noexcept;
  Sha256Stream& operator=(Sha256Stream&&) noexcept;

  void update(ByteSpan data);
  Sha256 finish();  // and starts anew

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256 sha256(ByteSpan data);

// The one-way name of a root or hash that may appear in logs, metrics and listings: the first 16
// hex digits of SHA-256("quiver public id\0" + hash).
std::string public_id(const Sha256& hash);

// XXH3-64, folded to the 32 bits that a view keeps per item.
std::uint32_t checksum32(ByteSpan data);

}  // namespace quiver

template <>
struct std::hash<quiver::Sha256> {
  std::size_t operator()(const quiver::Sha256& h) const noexcept {
    std::size_t v;
    std::memcpy(&v, h.bytes.data(), sizeof v);  // already uniform
    return v;
  }
};
