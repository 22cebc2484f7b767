#include "cache/client/archive_window.h"

#include <algorithm>

namespace quiver::cache {

namespace {

constexpr std::uint64_t kPiece = std::uint64_t{8} << 20;  // of contents
constexpr std::uint64_t kAhead = std::uint64_t{1} << 20;  // headers that lie close together
constexpr std::uint64_t kProbe = std::uint64_t{4} << 10;  // one header by itself
// Bytes that cost as much as a request: about 5 ms of a connection of 50 MB/s.
constexpr std::uint64_t kWorthARequest = std::uint64_t{256} << 10;

}  // namespace

std::optional<ByteSpan> ArchiveWindow::held(std::uint64_t offset, std::uint64_t length) const {
  if (offset < base_ || offset > end() || length > end() - offset) return std::nullopt;
  return as_bytes(memory_).subspan(offset - base_, length);
}

// How much to ask for when so many bytes have been jumped over.
std::uint64_t ArchiveWindow::step(std::uint64_t gap) const {
  if (gap > (local_ ? kProbe : kWorthARequest)) return kProbe;
  return contents_ ? kPiece : kAhead;
}

Result<ByteSpan> ArchiveWindow::get(std::uint64_t offset, std::uint64_t length, std::uint64_t keep,
                                    std::stop_token stop) {
  if (const auto bytes = held(offset, length)) return *bytes;
  keep = std::min(keep, offset);
  std::uint64_t ask = 0;
  if (keep < base_ || keep > end() || offset + length - keep > kLargest) {
    ask = step(offset > end() ? offset - end() : 0);
    base_ = offset;
    memory_.clear();
  } else {
    memory_.erase(0, keep - base_);
    base_ = keep;
    ask = step(0);
  }
  const std::uint64_t from = end(), whole = object_.version.size.value;
  ask = std::min(std::max(ask, offset + length - from), whole - from);
  memory_.resize(memory_.size() + ask);
  const auto out = std::as_writable_bytes(std::span(memory_)).last(ask);
  TRY(origin_.read({object_.key, from, object_.version}, out, stop));
  read_ += ask;
  return *held(offset, length);
}

}  // namespace quiver::cache
