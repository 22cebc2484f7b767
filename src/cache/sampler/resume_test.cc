// S10, S11, S12: every stop point, every change of the number of ranks.
#include <gtest/gtest.h>

#include "cache/sampler/epoch_sampler.h"
#include "cache/sampler/job_state.h"
#include "cache/sampler/ranks.h"
#include "cache/sampler/testing/drive.h"

namespace quiver::cache {
namespace {

struct Job {
  std::uint32_t items = 0, batch = 1;
  std::uint64_t seed = 1;
  bool strict = false, drop_last = false;
  Uneven uneven = Uneven::kPad;
};

// The ranks of a job between two restarts, in lockstep.
class Leg {
 public:
  Leg(const Job& job, std::uint32_t world, const JobState& from) : job_(job) {
    ItemSet remaining(job.items, true);
    remaining.remove(from.delivered);
    Shape shape{.items = remaining.count(), .world = world, .batch_size = job.batch};
    shape.drop_last = job.drop_last;
    shape.uneven = job.uneven;
    for (shape.rank = 0; shape.rank < world; ++shape.rank) {
      const RankPart part =
          part_of_rank(ItemSet(job.items, true), remaining, shape, job.seed, from.epoch);
      const EpochOptions options{.seed = job.seed,
                                 .epoch = from.epoch,
                                 .rank = shape.rank,
                                 .batch_size = job.batch,
                                 .drop_last = job.drop_last,
                                 .first_step = from.step,
                                 .pads = part.pads};
      samplers_.push_back(
          job.strict ? make_strict_sampler(options, part.items, true)
                     : make_substituting_sampler(options, part.items, resident(job.items)));
      RankState state(job.items);
      state.dataset = "0123456789abcdef";
      state.seed = job.seed, state.epoch = from.epoch, state.step = from.step;
      state.world = world, state.rank = shape.rank, state.batch_size = job.batch;
      state.mode = job.strict ? "strict" : "substitute";
      state.delivered_before = from.delivered;
      pads_.push_back(part.pads);
      states.push_back(state);
    }
  }

  bool done() const { return samplers_.front()->done(); }

  // One step of every rank; its items, rank after rank.
  testing::Order step() {
    testing::Order items;
    for (std::size_t rank = 0; rank < samplers_.size(); ++rank) {
      EXPECT_FALSE(samplers_[rank]->done());
      const DrawnBatch batch = testing::next_by_own_order(*samplers_[rank]);
      RankState& state = states[rank];
      EXPECT_EQ(batch.step, state.step);
      for (const ItemId id : batch.items) {
        items.push_back(id.value);
        const bool pad = !pads_[rank].empty() && pads_[rank].front() == id;
        state.delivered.insert(id);
        state.pads += pad ? 1 : 0;
      }
      auto chain = DeliveryChain::from(state.chain);
      chain.add(state.epoch, state.step, state.rank, batch.items);
      state.chain = chain.value();
      ++state.step;
    }
    for (const auto& sampler : samplers_) EXPECT_EQ(sampler->done(), done());
    return items;
  }

  // Saved, and loaded in another process.
  JobState saved() const {
    std::vector<RankState> loaded;
    for (const RankState& state : states) {
      auto copy = decode_rank_state(encode(state));
      EXPECT_TRUE(copy);
      loaded.push_back(*copy);
      if (done()) begin_next_epoch(loaded.back());
    }
    auto merged = merge(loaded);
    EXPECT_TRUE(merged) << (merged ? "" : merged.error().message);
    return *merged;
  }

  std::uint32_t pads() const {
    std::uint32_t sum = 0;
    for (const RankState& state : states) sum += state.pads;
    return sum;
  }

  std::vector<RankState> states;

 private:
  static ItemSet resident(std::uint32_t n) { return testing::resident_part(n, 0.4, n); }

  Job job_;
  std::vector<std::unique_ptr<EpochSampler>> samplers_;
  std::vector<std::vector<ItemId>> pads_;
};

JobState start_of(const Job& job) {
  JobState state{job.seed, 0, job.items, ItemSet(job.items), 0};
  return state;
}

// From `state`, reached after `before`, to the end of its epoch with `world` ranks.
void check_rest(const Job& job, const JobState& state, const std::vector<std::uint32_t>& before,
                std::uint32_t pads_before, std::uint32_t world) {
  std::vector<std::uint32_t> times = before;
  Leg leg(job, world, state);
  while (!leg.done()) {
    for (const std::uint32_t id : leg.step()) ++times[id];
  }
  std::uint32_t missing = 0, repeated = 0;
  for (const std::uint32_t t : times) missing += t == 0 ? 1 : 0, repeated += t > 1 ? t - 1 : 0;
  const std::uint32_t drop =
      (job.uneven == Uneven::kDrop ? world - 1 : 0) + (job.drop_last ? world * job.batch - 1 : 0);
  ASSERT_LE(missing, drop) << job.items << " " << world;
  ASSERT_LE(repeated, pads_before + leg.pads()) << job.items << " " << world;
  if (state.step == 0 && !job.drop_last && job.uneven == Uneven::kPad) {
    ASSERT_EQ(repeated, (world - job.items % world) % world);
  }
}

void check_every_stop(const Job& job, std::uint32_t world) {
  Leg leg(job, world, start_of(job));
  std::vector<std::uint32_t> times(job.items);
  for (;;) {
    const JobState state = leg.saved();
    if (leg.done()) std::fill(times.begin(), times.end(), 0);  // the next epoch, whole
    ASSERT_EQ(state.epoch, leg.done() ? 1u : 0u);
    for (const std::uint32_t other : {1u, 2u, 3u, 4u, 8u}) {
      check_rest(job, state, times, leg.done() ? 0 : leg.pads(), other);
    }
    if (leg.done()) return;
    for (const std::uint32_t id : leg.step()) ++times[id];
  }
}

void check_all_shapes(Job job, std::uint32_t step) {
  for (job.items = 0; job.items <= 60; job.items += step) {
    for (job.batch = 1; job.batch <= 5; ++job.batch) {
      for (std::uint32_t world = 1; world <= 5; ++world) check_every_stop(job, world);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(S10Elastic, SubstituteFromEveryStopToEveryWorld) {
  check_all_shapes({}, 1);
}
TEST(S10Elastic, StrictFromEveryStopToEveryWorld) {
  check_all_shapes({.strict = true}, 3);
}
TEST(S10Elastic, DroppingFromEveryStopToEveryWorld) {
  check_all_shapes({.uneven = Uneven::kDrop}, 3);
  check_all_shapes({.drop_last = true}, 4);
}

// "6 nodes: cannot reshape": start on six, go on with five, then one, then seven.
TEST(S10Elastic, ThroughSixFiveOneAndSevenRanks) {
  const Job job{.items = 1003, .batch = 4};
  JobState state = start_of(job);
  std::vector<std::uint32_t> times(job.items);
  std::uint32_t pads = 0;
  for (const std::uint32_t world : {6u, 5u, 1u}) {
    Leg leg(job, world, state);
    for (int i = 0; i < 11; ++i) {
      for (const std::uint32_t id : leg.step()) ++times[id];
    }
    pads += leg.pads();
    state = leg.saved();
  }
  EXPECT_EQ(state.step, 33u);
  check_rest(job, state, times, pads, 7);
}

// S11 in strict mode: prefix + resumed is the uninterrupted epoch, item for item.
TEST(S11Resume, StrictGoesOnExactlyWhereItStopped) {
  for (const std::uint32_t world : {1u, 2u, 3u}) {
    for (const std::uint32_t n : {1u, 17u, 48u, 60u}) {
      const Job job{.items = n, .batch = 4, .strict = true};
      testing::Order whole;
      Leg uninterrupted(job, world, start_of(job));
      while (!uninterrupted.done()) {
        for (const std::uint32_t id : uninterrupted.step()) whole.push_back(id);
      }
      for (std::uint32_t stop = 0; stop < uninterrupted.states.front().step; ++stop) {
        Leg first(job, world, start_of(job));
        testing::Order order;
        for (std::uint32_t i = 0; i < stop; ++i) {
          for (const std::uint32_t id : first.step()) order.push_back(id);
        }
        Leg second(job, world, first.saved());
        while (!second.done()) {
          for (const std::uint32_t id : second.step()) order.push_back(id);
        }
        ASSERT_EQ(order, whole) << n << " " << world << " " << stop;
      }
    }
  }
}

// State saved after the last batch is the start of the next epoch, with all of its items.
TEST(S11Resume, TheEndOfAnEpochIsTheStartOfTheNext) {
  const Job job{.items = 10, .batch = 3};
  JobState state = start_of(job);
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    ASSERT_EQ(state.epoch, epoch);
    ASSERT_EQ(state.step, 0u);
    Leg leg(job, 1, state);
    std::size_t delivered = 0;
    while (!leg.done()) delivered += leg.step().size();
    ASSERT_EQ(delivered, 10u);
    state = leg.saved();
  }
}

TEST(S12Chain, StrictRunsAndReplaysHaveEqualChains) {
  const auto chain_of = [](const Job& job) {
    Leg leg(job, 2, start_of(job));
    while (!leg.done()) leg.step();
    return leg.states[1].chain;
  };
  const Job strict{.items = 40, .batch = 3, .strict = true};
  EXPECT_EQ(chain_of(strict), chain_of(strict));
  EXPECT_NE(chain_of(strict), chain_of({.items = 40, .batch = 3, .seed = 2, .strict = true}));

  auto original = make_substituting_sampler({.batch_size = 3, .pads = {}}, ItemSet(40, true),
                                            testing::resident_part(40, 0.5, 1));
  std::vector<std::vector<ItemId>> list;
  DeliveryChain first, again, reordered;
  while (!original->done()) {
    list.push_back(testing::next_by_own_order(*original).items);
    first.add(0, static_cast<std::uint32_t>(list.size() - 1), 0, list.back());
  }
  auto replay = make_listed_sampler(list, 0);
  while (auto batch = replay->next()) again.add(0, batch->step, 0, batch->items);
  EXPECT_EQ(first.value(), again.value());
  std::swap(list[3][0], list[3][1]);
  for (std::uint32_t step = 0; step < list.size(); ++step) reordered.add(0, step, 0, list[step]);
  EXPECT_NE(first.value(), reordered.value());
}

}  // namespace
}  // namespace quiver::cache
