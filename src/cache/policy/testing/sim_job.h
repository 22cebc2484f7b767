// A job of a StagingWorld. For tests only.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "cache/sampler/epoch_sampler.h"

namespace quiver::cache::testing {

// What the test says of a job.
struct JobSetup {
  std::uint64_t seed = 1;
  double pace = 1;  // items a tick when it never waits
  std::uint32_t batch = 8;
  std::uint32_t start = 0;  // tick
  std::uint32_t epochs = 1;
};

struct SimJob : JobSetup {
  // What happened.
  std::vector<std::vector<ItemId>> orders;  // by epoch
  std::vector<std::uint32_t> ended;         // tick at which each epoch ended
  std::vector<std::uint32_t> hits;          // settled items drawn
  std::uint32_t directed = 0;

  // Its state.
  std::unique_ptr<EpochSampler> sampler;
  ItemSet settled{0}, taken{0};
  double budget = 0;
  std::uint64_t seen = 0;              // places below it have been looked at
  std::set<std::uint64_t> open, used;  // places not yet offered; places offered
  std::set<std::uint32_t> asked;
  std::uint64_t useless = 0, useless_then = 0;  // places that were of no use; when the epoch began
  std::uint32_t starved = 0;
  std::uint32_t drawn = 0, late = 0;  // batches of this epoch; those that were waited for
  bool waits = false;

  // Returns the number of the epoch.
  std::uint64_t begin(std::uint32_t items) {
    orders.emplace_back();
    hits.push_back(0);
    taken = settled = ItemSet(items);
    open.clear();
    asked.clear();
    useless_then = useless;
    drawn = late = 0;
    return orders.size() - 1;
  }
  std::uint32_t batches_to_ask() const { return 2 * late > drawn ? 4 : 2; }
  bool finished() const { return orders.size() == epochs && !sampler; }
};

}  // namespace quiver::cache::testing
