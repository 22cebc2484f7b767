#include "base/hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include "base/check.h"

namespace quiver {

namespace {
int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
}  // namespace

std::string Sha256::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(64);
  for (std::uint8_t b : bytes) {
    out.push_back(kDigits[b >> 4]);
    out.push_back(kDigits[b & 15]);
  }
  return out;
}

Result<Sha256> Sha256::from_hex(std::string_view text) {
  Sha256 out;
  if (text.size() != 64)
    return error(Code::kInvalid, "a SHA-256 has 64 hex digits, not {}", text.size());
  for (std::size_t i = 0; i < 32; ++i) {
    int hi = hex_value(text[2 * i]), lo = hex_value(text[2 * i + 1]);
    if (hi < 0 || lo < 0) return error(Code::kInvalid, "a SHA-256 has hex digits only");
    out.bytes[i] = static_cast<std::uint8_t>(hi << 4 | lo);
  }
  return out;
}

std::uint64_t Sha256::prefix() const {
  std::uint64_t v = 0;
  for (int i = 0; i < 8; ++i) v = v << 8 | bytes[static_cast<std::size_t>(i)];
  return v;
}

struct Sha256Stream::State {
  EVP_MD_CTX* ctx = EVP_MD_CTX_new();
  // Fetched once: EVP_sha256() would look the algorithm up on every init.
  static const EVP_MD* algorithm() {
    static const EVP_MD* md = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    return md;
  }
  State() { start(); }
  ~State() { EVP_MD_CTX_free(ctx); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  void start() { CHECK(EVP_DigestInit_ex2(ctx, algorithm(), nullptr) == 1); }
};

Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {}
Sha256Stream::~Sha256Stream() = default;
Sha256Stream::Sha256Stream(Sha256Stream&&) noexcept = default;
Sha256Stream& Sha256Stream::operator=(Sha256Stream&&) noexcept = default;

void Sha256Stream::update(ByteSpan data) {
  CHECK(EVP_DigestUpdate(state_->ctx, data.data(), data.size()) == 1);
}

Sha256 Sha256Stream::finish() {
  Sha256 out;
  CHECK(EVP_DigestFinal_ex(state_->ctx, out.bytes.data(), nullptr) == 1);
  state_->start();
  return out;
}

Sha256 sha256(ByteSpan data) {
  Sha256Stream stream;
  stream.update(data);
  return stream.finish();
}

std::string public_id(const Sha256& hash) {
  Sha256Stream stream;
  stream.update(as_bytes(std::string_view("quiver public id\0", 17)));
  stream.update(std::as_bytes(std::span(hash.bytes)));
  return stream.finish().hex().substr(0, 16);
}

std::uint32_t checksum32(ByteSpan data) {
  std::uint64_t h = XXH3_64bits(data.data(), data.size());
  return static_cast<std::uint32_t>(h ^ (h >> 32));
}

}  // namespace quiver
