// How an epoch divides over ranks, and how many batches that makes. Pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "cache/sampler/item_set.h"
#include "cache/sampler/permutation.h"

namespace quiver::cache {

// What happens when the ranks cannot have equally many items.
enum class Uneven {
  kPad,   // some items are given twice; counted and reported (the default, as in torch)
  kDrop,  // the last items of this epoch's order are left out
  kKeep,  // ranks differ by one item: for evaluation
};

struct Shape {
  std::uint32_t items = 0;  // that are divided: N, or what is left of a resumed epoch
  std::uint32_t world = 1, rank = 0;
  std::uint32_t batch_size = 1;
  bool drop_last = false;
  Uneven uneven = Uneven::kPad;
  bool shuffle = true;  // false: dealt in ascending order, for unshuffled strict runs
};

std::uint32_t items_of_rank(const Shape& shape);    // pads included
std::uint32_t batches_of_rank(const Shape& shape);  // len(loader)

struct RankPart {
  ItemSet items;             // what this rank draws from; without pads
  std::vector<ItemId> pads;  // extra items that it delivers besides (kPad)
};

// This rank's part of `remaining`: places r, r+W, … of it in the order of the strict permutation
// (seed, epoch), which knows nothing of where items live. The parts of all ranks are disjoint and
// cover it (kPad, kKeep). A strict run that resumes gets the deal that it would have had. A pad is
// one of the first items of that order, as in torch, and of `base`: the items of the whole epoch,
// all or a subset. shape.items is that of `remaining`.
RankPart part_of_rank(const ItemSet& base, const ItemSet& remaining, const Shape& shape,
                      std::uint64_t seed, std::uint64_t epoch);

}  // namespace quiver::cache
