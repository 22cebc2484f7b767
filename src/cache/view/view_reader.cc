#include "cache/view/view.h"
#include "cache/view/view_layout.h"

namespace quiver::cache {

using namespace layout;

Result<ViewReader> ViewReader::map(const io::Fd& fd, std::uint32_t items) {
  auto header = io::Mapping::map(fd.get(), kWords, false);
  if (!header) return std::move(header).error().context("the memory is not a view");
  std::byte* m = header->data();
  if (u64(m, kMagic).load(std::memory_order_acquire) != kViewMagic) {
    return error(Code::kInvalid, "the memory is not a view");
  }
  const auto version = u32(m, kVersion).load(std::memory_order_relaxed);
  if (version != kViewVersion) {
    return error(Code::kVersion, "the daemon's view has version {}, this program reads {}", version,
                 kViewVersion);
  }
  const auto size = u32(m, kItems).load(std::memory_order_relaxed);
  const auto ring = u32(m, kRing).load(std::memory_order_relaxed);
  if (size != items || ring != ring_capacity(items)) {
    return error(Code::kInvalid, "the view has {} items, its manifest has {}", size, items);
  }
  ViewReader view;
  auto memory = io::Mapping::map(fd.get(), view_size(items), false);
  if (!memory) return std::move(memory).error().context("the view is cut short");
  view.memory_ = std::move(*memory);
  view.size_ = items;
  return view;
}

std::uint32_t ViewReader::size() const {
  return size_;
}

ViewWord ViewReader::word(ItemId id) const {
  if (id.value >= size_) return ViewWord();
  return ViewWord(
      u64(memory_.data(), kWords + std::size_t{8} * id.value).load(std::memory_order_acquire));
}

std::uint32_t ViewReader::checksum(ItemId id) const {
  if (id.value >= size_) return 0;
  return u32(memory_.data(), checksums_at(size_) + std::size_t{4} * id.value)
      .load(std::memory_order_relaxed);
}

std::uint64_t ViewReader::head() const {
  return u64(memory_.data(), kHead).load(std::memory_order_acquire);
}

std::uint64_t ViewReader::tail() const {
  return u64(memory_.data(), kTail).load(std::memory_order_acquire);
}

std::optional<ItemId> ViewReader::ordered(std::uint64_t place) const {
  const std::uint64_t capacity = ring_capacity(size_);
  if (place >= head()) return std::nullopt;
  const auto id = u32(memory_.data(), ring_at(size_) + 4 * (place & (capacity - 1)))
                      .load(std::memory_order_acquire);
  // Looked at again: a writer that has come round may have put another item there.
  if (head() - place >= capacity || id >= size_) return std::nullopt;
  return ItemId(id);
}

ViewCounters ViewReader::counters() const {
  std::byte* m = memory_.data();
  return {.origin_bytes = u64(m, kCounters).load(std::memory_order_relaxed),
          .origin_reads = u64(m, kCounters + 8).load(std::memory_order_relaxed),
          .origin_errors = u64(m, kCounters + 16).load(std::memory_order_relaxed),
          .evicted_items = u64(m, kCounters + 24).load(std::memory_order_relaxed)};
}

Instant ViewReader::heartbeat() const {
  const auto ns = u64(memory_.data(), kHeartbeat).load(std::memory_order_relaxed);
  return Instant(Duration(static_cast<Duration::rep>(ns)));
}

std::uint32_t ViewReader::changes() const {
  return u32(memory_.data(), kChanges).load(std::memory_order_acquire);
}

bool ViewReader::wait_change(std::uint32_t seen, Duration timeout) const {
  return io::futex_wait(reinterpret_cast<const std::uint32_t*>(memory_.data() + kChanges), seen,
                        timeout.count());
}

}  // namespace quiver::cache
