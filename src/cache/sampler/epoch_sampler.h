// EpochSampler: the order in which one rank of a job draws one epoch.
//
// Substitute mode draws each batch in proportion: of the b items of a batch a hypergeometric number
// k comes from what is missing, the rest uniformly from what was resident when the epoch began (the
// settled items); the missing ones are taken in the order in which they were ordered from the
// origin, itself a keyed permutation, so an item's position does not betray where it lay
// (docs: sampling contract S3). k is drawn once per batch and kept while the batch waits: drawing
// it anew would favour what is resident. Strict mode is a permutation of (seed, epoch) alone.
//
// Pure: no clock, no I/O. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/units.h"
#include "cache/sampler/item_set.h"
#include "cache/sampler/permutation.h"

namespace quiver::cache {

struct DrawnBatch {
  std::uint32_t step = 0;  // of this rank in this epoch, from 0 (a resumed one goes on)
  std::vector<ItemId> items;
  std::uint32_t missing = 0;  // how many of them were not settled
};

class EpochSampler {
 public:
  virtual ~EpochSampler() = default;
  // The next batch; nullopt while it waits for offers, or when done().
  virtual std::optional<DrawnBatch> next() = 0;
  virtual bool done() const = 0;
  // How many more offers the batch that is being drawn needs; 0 in strict mode.
  virtual std::uint32_t wanted_now() const = 0;
  // True when the item is missing, not yet drawn nor offered: an offer of it would be accepted.
  virtual bool wants(ItemId id) const = 0;
  // A missing item has arrived. Offers come in the order in which the items were ordered.
  // False (and nothing happens) when it is not wanted.
  virtual bool offer(ItemId id) = 0;
  // A settled item was lost before it was drawn: it is missing from now on.
  virtual void lost(ItemId id) = 0;
  // The next `count` undrawn, unoffered missing items in this rank's own keyed order: what it asks
  // for when nothing that passes is of use to it, and what a strict run prefetches.
  virtual std::vector<ItemId> own_order(std::uint32_t count) const = 0;
};

struct EpochOptions {
  std::uint64_t seed = 0, epoch = 0;
  std::uint32_t rank = 0;  // part of the draw's key: ranks draw independently
  std::uint32_t batch_size = 1;
  bool drop_last = false;
  std::uint32_t first_step = 0;  // steps that were delivered before a resume
  std::vector<ItemId> pads;      // delivered besides, spread uniformly over the positions
  // Strict: the places of the order that are known to be behind, so that a resume costs the same
  // wherever it is. What remains of them all the same (batches that were delivered out of order, or
  // failed) comes last.
  std::uint32_t first_place = 0;
};

// `remaining`: what this rank has still to draw. `settled`: resident now (only those in remaining
// count).
std::unique_ptr<EpochSampler> make_substituting_sampler(const EpochOptions& options,
                                                        const ItemSet& remaining,
                                                        const ItemSet& settled);

// Strict, shuffled: the items of `remaining` in the order of the permutation (seed, epoch) of all
// N, dealt to ranks in turn, exactly as an uninterrupted run with the same seed and world would.
// Not shuffled: ascending.
std::unique_ptr<EpochSampler> make_strict_sampler(const EpochOptions& options,
                                                  const ItemSet& remaining, bool shuffle);

// A list of batches that is given: replay, a user's own sampler.
std::unique_ptr<EpochSampler> make_listed_sampler(std::vector<std::vector<ItemId>> batches,
                                                  std::uint32_t first_step);

}  // namespace quiver::cache
