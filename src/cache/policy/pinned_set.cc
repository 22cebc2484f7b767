#include "cache/policy/pinned_set.h"

#include <algorithm>

namespace quiver::cache {

HashOrder::HashOrder(std::uint32_t items, HashOf hash_of, Bytes total)
    : hash_of_(std::move(hash_of)) {
  for (Bytes all = 128_MiB; total < all && all > 8_MiB; all = all / 2) band_mask_ <<= 1;
  // Sorting by the prefix alone keeps the sort in cache; the rare ties compare the whole hash.
  std::vector<std::pair<std::uint64_t, ItemId>> keyed;
  keyed.reserve(items);
  for (std::uint32_t i = 0; i < items; ++i) {
    keyed.emplace_back(hash_of_(ItemId(i)).prefix(), ItemId(i));
  }
  std::sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    const auto order = hash_of_(a.second) <=> hash_of_(b.second);
    return order != 0 ? order < 0 : a.second < b.second;
  });
  items_.reserve(items);
  for (const auto& [prefix, id] : keyed) items_.push_back(id);
}

std::span<const ItemId> HashOrder::find(const Sha256& hash) const {
  const auto [first, last] =
      std::equal_range(items_.begin(), items_.end(), hash, [this](const auto& a, const auto& b) {
        const auto value = [this](const auto& v) -> const Sha256& {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, ItemId>) {
            return hash_of_(v);
          } else {
            return v;
          }
        };
        return value(a) < value(b);
      });
  return {first, last};
}

namespace {

// Calls f(span of equal entries, disk cost) by content in hash order until f returns false.
template <class F>
void each_content(const HashOrder& order, const std::function<Bytes(ItemId)>& length_of, F&& f) {
  const auto& items = order.items();
  int band = -1;
  for (std::size_t first = 0; first < items.size();) {
    const Sha256& hash = order.hash(items[first]);
    std::size_t last = first + 1;
    while (last < items.size() && order.hash(items[last]) == hash) ++last;
    std::uint64_t cost = length_of(items[first]).value + kRowCost;
    if (order.band(hash) != band) cost += kBandCost;
    if (f(std::span(items).subspan(first, last - first), cost)) band = order.band(hash);
    first = last;
  }
}

}  // namespace

PinnedSet choose_pinned(const HashOrder& order, const std::function<Bytes(ItemId)>& length_of,
                        Bytes limit, Bytes share) {
  PinnedSet chosen{ItemSet(static_cast<std::uint32_t>(order.items().size())), Bytes(0), 0};
  const bool all_fits = disk_need(order, length_of) <= limit;
  bool full = false;
  each_content(order, length_of, [&](std::span<const ItemId> same, std::uint64_t cost) {
    const Bytes length = length_of(same.front());
    if (full || (length > share / 16 && !all_fits)) return false;
    full = chosen.disk + cost > limit.value;
    if (full) return false;
    for (const ItemId id : same) chosen.items.insert(id);
    chosen.bytes += length;
    chosen.disk += cost;
    return true;
  });
  return chosen;
}

Bytes disk_need(const HashOrder& order, const std::function<Bytes(ItemId)>& length_of) {
  Bytes need;
  each_content(order, length_of, [&](std::span<const ItemId>, std::uint64_t cost) {
    need += Bytes(cost);
    return true;
  });
  return need;
}

}  // namespace quiver::cache
