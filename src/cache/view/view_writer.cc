#include "base/check.h"
#include "cache/view/view.h"
#include "cache/view/view_layout.h"

namespace quiver::cache {

using namespace layout;

Result<ViewWriter> ViewWriter::create(std::uint32_t items) {
  ViewWriter view;
  view.memory_ = TRY(io::publish_memory("quiver-view", view_size(items)));
  view.size_ = items;
  std::byte* m = view.memory_.writer.data();
  u32(m, kVersion).store(kViewVersion, std::memory_order_relaxed);
  u32(m, kItems).store(items, std::memory_order_relaxed);
  u32(m, kRing).store(ring_capacity(items), std::memory_order_relaxed);
  u64(m, kMagic).store(kViewMagic, std::memory_order_release);
  return view;
}

int ViewWriter::readers_fd() const {
  return memory_.readers.get();
}
Bytes ViewWriter::memory() const {
  return Bytes(memory_.writer.size());
}
std::uint32_t ViewWriter::size() const {
  return size_;
}

void ViewWriter::publish(ItemId id, ViewWord word, std::uint32_t checksum) {
  CHECK(id.value < size_);
  std::byte* m = memory_.writer.data();
  u32(m, checksums_at(size_) + std::size_t{4} * id.value)
      .store(checksum, std::memory_order_relaxed);
  u64(m, kWords + std::size_t{8} * id.value).store(word.bits(), std::memory_order_release);
}

void ViewWriter::clear(ItemId id) {
  CHECK(id.value < size_);
  u64(memory_.writer.data(), kWords + std::size_t{8} * id.value)
      .store(0, std::memory_order_release);
}

ViewWord ViewWriter::word(ItemId id) const {
  CHECK(id.value < size_);
  return ViewWord(u64(memory_.writer.data(), kWords + std::size_t{8} * id.value)
                      .load(std::memory_order_relaxed));
}

// The slot is stored with release, after the head that precedes it: who reads the new value of a
// slot also sees that the old place has left the ring.
std::uint64_t ViewWriter::order(ItemId id) {
  CHECK(id.value < size_);
  std::byte* m = memory_.writer.data();
  const std::uint64_t place = head();
  const std::uint64_t slot = place & (ring_capacity(size_) - 1);
  u32(m, ring_at(size_) + 4 * slot).store(id.value, std::memory_order_release);
  u64(m, kHead).store(place + 1, std::memory_order_release);
  return place;
}

std::uint64_t ViewWriter::head() const {
  return u64(memory_.writer.data(), kHead).load(std::memory_order_relaxed);
}

void ViewWriter::retire_until(std::uint64_t place) {
  CHECK(place <= head());
  if (place > tail()) u64(memory_.writer.data(), kTail).store(place, std::memory_order_release);
}

std::uint64_t ViewWriter::tail() const {
  return u64(memory_.writer.data(), kTail).load(std::memory_order_relaxed);
}

void ViewWriter::beat(Instant now) {
  u64(memory_.writer.data(), kHeartbeat)
      .store(static_cast<std::uint64_t>(now.time_since_epoch().count()), std::memory_order_relaxed);
}

void ViewWriter::set_counters(const ViewCounters& c) {
  std::byte* m = memory_.writer.data();
  u64(m, kCounters).store(c.origin_bytes, std::memory_order_relaxed);
  u64(m, kCounters + 8).store(c.origin_reads, std::memory_order_relaxed);
  u64(m, kCounters + 16).store(c.origin_errors, std::memory_order_relaxed);
  u64(m, kCounters + 24).store(c.evicted_items, std::memory_order_relaxed);
}

void ViewWriter::notify() {
  std::byte* m = memory_.writer.data();
  u32(m, kChanges).fetch_add(1, std::memory_order_release);
  io::futex_wake_all(reinterpret_cast<std::uint32_t*>(m + kChanges));
}

}  // namespace quiver::cache
