// Which items of a dataset a node keeps: a prefix of the hash order, so that a change of the share
// needs no list. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/units.h"
#include "cache/sampler/item_set.h"

namespace quiver::cache {

// The items of a manifest by hash: equal content lies side by side. 4 bytes an item. Immutable; any
// thread may look. Keeps the function, whose manifest must outlive it.
class HashOrder {
 public:
  using HashOf = std::function<const Sha256&(ItemId)>;
  // `total`: bytes of all items; it decides how wide a band is.
  HashOrder(std::uint32_t items, HashOf hash_of, Bytes total);

  const std::vector<ItemId>& items() const { return items_; }
  std::span<const ItemId> find(const Sha256& hash) const;  // all entries with this content
  const Sha256& hash(ItemId id) const { return hash_of_(id); }
  // The band of pinned items in which it lies, by the first byte of the band's first hash. A band
  // is 1/256 of the hash space, and of a small dataset so much more that it has about half a MiB:
  // each costs the rounding of its files.
  std::uint8_t band(const Sha256& hash) const { return hash.bytes[0] & band_mask_; }
  std::uint8_t band_mask() const { return band_mask_; }

 private:
  HashOf hash_of_;
  std::uint8_t band_mask_ = 0xFF;
  std::vector<ItemId> items_;
};

struct PinnedSet {
  ItemSet items;           // every entry whose content is pinned
  Bytes bytes;             // distinct content
  std::uint64_t disk = 0;  // what it is expected to occupy
};

// What a pinned item costs beside its bytes: a row of the index, and for the first one of a band
// the rounding of two files.
inline constexpr std::uint64_t kRowCost = 64, kBandCost = 6144;

// In hash order until `limit` bytes of disk are full; content above 1/16 of the share is passed
// over (pinning it would push out sixteen times its number), unless all of the dataset fits.
PinnedSet choose_pinned(const HashOrder& order, const std::function<Bytes(ItemId)>& length_of,
                        Bytes limit, Bytes share);

// What all of a dataset would occupy, pinned.
Bytes disk_need(const HashOrder& order, const std::function<Bytes(ItemId)>& length_of);

}  // namespace quiver::cache
