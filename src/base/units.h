// The ids and units of the product, as types, so that no call can mix them up.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace quiver {

// A number of bytes. 64 bits, never negative.
struct Bytes {
  std::uint64_t value = 0;

  constexpr Bytes() = default;
  constexpr explicit Bytes(std::uint64_t v) : value(v) {}
  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes b) { return value += b.value, *this; }
  constexpr Bytes& operator-=(Bytes b) { return value -= b.value, *this; }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.value + b.value); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.value - b.value); }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t k) { return Bytes(a.value * k); }
  friend constexpr Bytes operator/(Bytes a, std::uint64_t k) { return Bytes(a.value / k); }
};

constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes(n << 10);
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes(n << 20);
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes(n << 30);
}

// An entry of a manifest: its index, 0 … N−1, in the manifest's order.
struct ItemId {
  std::uint32_t value = 0;

  constexpr ItemId() = default;
  constexpr explicit ItemId(std::uint32_t v) : value(v) {}
  constexpr auto operator<=>(const ItemId&) const = default;
};

// A segment file of a cache directory. Never used twice in the life of the directory.
struct SegmentId {
  std::uint32_t value = 0;

  constexpr SegmentId() = default;
  constexpr explicit SegmentId(std::uint32_t v) : value(v) {}
  constexpr auto operator<=>(const SegmentId&) const = default;
};

}  // namespace quiver

template <>
struct std::hash<quiver::ItemId> {
  std::size_t operator()(quiver::ItemId id) const noexcept { return id.value; }
};
template <>
struct std::hash<quiver::SegmentId> {
  std::size_t operator()(quiver::SegmentId id) const noexcept { return id.value; }
};
