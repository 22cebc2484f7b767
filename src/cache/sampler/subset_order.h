// SubsetOrder: the members of a set one after another, in the order of a permutation of all items.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cache/sampler/item_set.h"
#include "cache/sampler/permutation.h"

namespace quiver::cache {

// Owns the permutation and, when the set is a small part of all (one rank of many), its sorted
// places, 8 bytes an item; otherwise it walks over all places and holds nothing. Either way a walk
// to the end costs O(N) at most. One thread at a time.
// Invariant: every initial member is behind (place < passed()) or will still be met.
class SubsetOrder {
 public:
  // `order` nullopt: ascending.
  SubsetOrder(std::optional<Permutation> order, const ItemSet& initial);
  // Goes round all places, from this one on. For next() alone.
  SubsetOrder(std::optional<Permutation> order, std::uint32_t size, std::uint32_t first_place)
      : order_(std::move(order)),
        size_(size),
        passed_(first_place),
        again_(first_place),
        sparse_(false) {}

  // The next item in order that is in `members`, whose initial members were `initial`.
  std::optional<ItemId> next(const ItemSet& members);
  // True when next() will still meet this item, if it is a member then.
  bool ahead(ItemId id) const;
  // All places below this one are behind.
  std::uint32_t passed() const { return passed_; }
  // Places whose items have been computed: what it has cost so far.
  std::uint64_t computed() const { return computed_; }

 private:
  std::uint32_t place_of(ItemId id) const;
  void refill();

  std::optional<Permutation> order_;
  std::uint32_t size_;
  std::uint32_t passed_ = 0;
  std::uint32_t again_ = 0;  // places before the first one, to be passed at the end
  std::uint64_t computed_ = 0;
  bool sparse_;
  std::vector<std::pair<std::uint32_t, ItemId>> sorted_;  // sparse: (place, item)
  std::size_t cursor_ = 0;                                // sparse: into sorted_
  std::vector<std::uint32_t> chunk_;                      // dense: items from place chunk_at_ on
  std::uint32_t chunk_at_ = 0;
};

}  // namespace quiver::cache
