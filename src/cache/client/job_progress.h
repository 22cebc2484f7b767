// JobProgress: what a rank has delivered to the training loop, and what a checkpoint says of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/sampler/job_state.h"

namespace quiver::cache {

// Pure; one thread at a time. Counts batches as delivered in any order. When the last batch of an
// epoch has been delivered the state is that of the next epoch's start.
class JobProgress {
 public:
  // `start`: a state in which nothing was delivered; its fields other than the epoch's stay.
  explicit JobProgress(RankState start) : state_(std::move(start)), part_(state_.items, true) {}

  // An epoch of `batches` batches begins after `first_step` steps that delivered `before`. What
  // lies outside this rank's `part` can only be a pad.
  void begin(std::uint64_t epoch, std::uint32_t first_step, std::uint32_t batches,
             const ItemSet& before, ItemSet part);
  // A loaded state, before its epoch begins.
  void load(const JobState& state);
  // Returns how many of the items were pads.
  std::uint32_t deliver(std::uint32_t step, const std::vector<ItemId>& items);
  bool finished() const { return batches_left_ == 0; }
  RankState state() const;
  std::uint64_t seed() const { return state_.seed; }

 private:
  RankState state_;
  ItemSet part_;
  DeliveryChain chain_;
  std::uint32_t batches_left_ = UINT32_MAX;  // before the first epoch: not finished
};

}  // namespace quiver::cache
