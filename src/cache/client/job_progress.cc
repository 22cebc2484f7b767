#include "cache/client/job_progress.h"

namespace quiver::cache {

void JobProgress::begin(std::uint64_t epoch, std::uint32_t first_step, std::uint32_t batches,
                        const ItemSet& before, ItemSet part) {
  state_.epoch = epoch;
  state_.step = first_step;
  state_.pads = 0;
  state_.delivered = ItemSet(state_.items);
  state_.delivered_before = before;
  part_ = std::move(part);
  batches_left_ = batches;
}

void JobProgress::load(const JobState& state) {
  state_.seed = state.seed;
  chain_ = state_.world == 1 ? DeliveryChain::from(state.chain) : DeliveryChain{};
  begin(state.epoch, state.step, UINT32_MAX, state.delivered, ItemSet(state_.items, true));
}

std::uint32_t JobProgress::deliver(std::uint32_t step, const std::vector<ItemId>& items) {
  chain_.add(state_.epoch, step, state_.rank, items);
  std::uint32_t pads = 0;
  for (const ItemId id : items) {
    const bool again = state_.delivered_before.contains(id) || !state_.delivered.insert(id);
    if (again || !part_.contains(id)) ++pads;
  }
  state_.pads += pads;
  ++state_.step;
  --batches_left_;
  return pads;
}

RankState JobProgress::state() const {
  RankState state = state_;
  state.chain = chain_.value();
  if (finished()) begin_next_epoch(state);
  return state;
}

}  // namespace quiver::cache
