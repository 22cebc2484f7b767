// The words of a payload: little-endian integers, strings with a 32-bit length before them.
//
//   Writer w;                                  Reader r(payload);
//   w.u32(item.value).string(key);             auto item = ItemId(TRY(r.u32()));
//   send(w.take());                            auto key = TRY(r.string());
//                                              TRY(r.done());
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/result.h"

namespace quiver::rpc {

// Collects a payload. Owns what it wrote until take(). One thread at a time. Cannot fail: a string
// of 4 GiB is a bug.
class Writer {
 public:
  Writer& u8(std::uint8_t v) { return integer(v); }
  Writer& u16(std::uint16_t v) { return integer(v); }
  Writer& u32(std::uint32_t v) { return integer(v); }
  Writer& u64(std::uint64_t v) { return integer(v); }
  Writer& i32(std::int32_t v) { return integer(static_cast<std::uint32_t>(v)); }
  Writer& i64(std::int64_t v) { return integer(static_cast<std::uint64_t>(v)); }
  Writer& f64(double v) { return integer(std::bit_cast<std::uint64_t>(v)); }
  Writer& boolean(bool v) { return integer(static_cast<std::uint8_t>(v)); }
  Writer& string(std::string_view v);
  Writer& bytes(ByteSpan v) { return string(as_text(v)); }
  Writer& sha256(const Sha256& v);

  std::size_t size() const { return out_.size(); }
  std::string take() { return std::exchange(out_, {}); }

 private:
  template <std::unsigned_integral T>
  Writer& integer(T v) {
    for (std::size_t i = 0; i < sizeof v; ++i) out_.push_back(static_cast<char>(v >> (8 * i)));
    return *this;
  }

  std::string out_;
};

// Reads a payload that came from outside: whatever the bytes are, every call ends with a value or
// kCorrupt, nothing is read beyond their end and nothing larger than them is allocated. Borrows the
// bytes, which must outlive it. One thread at a time.
class Reader {
 public:
  explicit Reader(ByteSpan data) : rest_(data) {}
  explicit Reader(std::string_view data) : rest_(as_bytes(data)) {}

  Result<std::uint8_t> u8() { return integer<std::uint8_t>(); }
  Result<std::uint16_t> u16() { return integer<std::uint16_t>(); }
  Result<std::uint32_t> u32() { return integer<std::uint32_t>(); }
  Result<std::uint64_t> u64() { return integer<std::uint64_t>(); }
  Result<std::int32_t> i32();
  Result<std::int64_t> i64();
  Result<double> f64();
  Result<bool> boolean();  // anything but 0 and 1 is kCorrupt
  Result<std::string> string();
  Result<ByteSpan> bytes();  // borrowed from the payload, not copied
  Result<Sha256> sha256();
  // The u32 number of elements that follow, each at least `least_size` (≥ 1) bytes long: kCorrupt
  // when they cannot all be there, so that it is safe to reserve room for them.
  Result<std::uint32_t> count(std::size_t least_size);

  std::size_t left() const { return rest_.size(); }
  Status done() const;  // kCorrupt when bytes are left

 private:
  Result<ByteSpan> cut(std::size_t size);
  template <std::unsigned_integral T>
  Result<T> integer() {
    const ByteSpan b = TRY(cut(sizeof(T)));
    T v = 0;
    for (std::size_t i = 0; i < sizeof v; ++i) {
      v = static_cast<T>(v | static_cast<T>(static_cast<T>(b[i]) << (8 * i)));
    }
    return v;
  }

  ByteSpan rest_;
};

}  // namespace quiver::rpc
