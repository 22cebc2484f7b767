// Where things lie in a view's memory: shared by both sides, frozen by docs/formats/view.md.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace quiver::cache::layout {

inline constexpr std::uint64_t kViewMagic = 0x0057'4549'5652'5651;  // "QVRVIEW\0"
inline constexpr std::uint32_t kViewVersion = 1;

inline constexpr std::size_t kMagic = 0, kVersion = 8, kItems = 12, kRing = 16;
inline constexpr std::size_t kHead = 64, kTail = 72, kHeartbeat = 128, kChanges = 136;
inline constexpr std::size_t kCounters = 192;  // origin bytes, reads, errors; evicted items
inline constexpr std::size_t kWords = 256;

// One place less than this is readable: the oldest is the one being overwritten.
constexpr std::uint32_t ring_capacity(std::uint32_t items) {
  return items <= 64 ? 64 : std::bit_ceil(items);
}
constexpr std::size_t checksums_at(std::uint32_t items) {
  return kWords + std::size_t{8} * items;
}
constexpr std::size_t ring_at(std::uint32_t items) {
  return checksums_at(items) + std::size_t{4} * items;
}
constexpr std::size_t view_size(std::uint32_t items) {
  return ring_at(items) + std::size_t{4} * ring_capacity(items);
}

template <class T>
std::atomic_ref<T> cell(std::byte* memory, std::size_t offset) {
  static_assert(std::atomic_ref<T>::is_always_lock_free);
  return std::atomic_ref<T>(*reinterpret_cast<T*>(memory + offset));
}
inline std::atomic_ref<std::uint64_t> u64(std::byte* memory, std::size_t offset) {
  return cell<std::uint64_t>(memory, offset);
}
inline std::atomic_ref<std::uint32_t> u32(std::byte* memory, std::size_t offset) {
  return cell<std::uint32_t>(memory, offset);
}

}  // namespace quiver::cache::layout
