#include "rpc/wire.h"

#include <limits>

#include "base/check.h"

namespace quiver::rpc {

Writer& Writer::string(std::string_view v) {
  CHECK(v.size() <= std::numeric_limits<std::uint32_t>::max());
  u32(static_cast<std::uint32_t>(v.size()));
  out_.append(v);
  return *this;
}

Writer& Writer::sha256(const Sha256& v) {
  out_.append(as_text(std::as_bytes(std::span(v.bytes))));
  return *this;
}

Result<ByteSpan> Reader::cut(std::size_t size) {
  if (size > rest_.size()) {
    return error(Code::kCorrupt, "a message ends {} bytes early", size - rest_.size());
  }
  const ByteSpan taken = rest_.first(size);
  rest_ = rest_.subspan(size);
  return taken;
}

Result<std::int32_t> Reader::i32() {
  return static_cast<std::int32_t>(TRY(u32()));
}
Result<std::int64_t> Reader::i64() {
  return static_cast<std::int64_t>(TRY(u64()));
}
Result<double> Reader::f64() {
  return std::bit_cast<double>(TRY(u64()));
}

Result<bool> Reader::boolean() {
  const std::uint8_t v = TRY(u8());
  if (v > 1) return error(Code::kCorrupt, "a message has {} where a truth value belongs", v);
  return v == 1;
}

Result<std::string> Reader::string() {
  return std::string(as_text(TRY(bytes())));
}
Result<ByteSpan> Reader::bytes() {
  return cut(TRY(u32()));
}

Result<Sha256> Reader::sha256() {
  Sha256 hash;
  const ByteSpan b = TRY(cut(hash.bytes.size()));
  std::memcpy(hash.bytes.data(), b.data(), b.size());
  return hash;
}

Result<std::uint32_t> Reader::count(std::size_t least_size) {
  CHECK(least_size > 0);
  const std::uint32_t n = TRY(u32());
  if (n > rest_.size() / least_size) {
    return error(Code::kCorrupt, "a message announces {} elements in {} bytes", n, rest_.size());
  }
  return n;
}

Status Reader::done() const {
  if (rest_.empty()) return {};
  return error(Code::kCorrupt, "a message has {} bytes too many", rest_.size());
}

}  // namespace quiver::rpc
