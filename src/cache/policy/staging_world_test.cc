// What the staging policy promises, end to end in virtual time: bytes, hits, pace, independence.
#include "cache/policy/testing/staging_world.h"

#include <gtest/gtest.h>

#include "cache/policy/testing/order_correlation.h"
#include "cache/sampler/testing/statistics.h"

namespace quiver::cache {
namespace {

using testing::order_correlation;
using testing::SimJob;
using testing::StagingWorld;
using testing::uncorrelated;

constexpr std::uint32_t kN = 4000, kPinned = 800, kWindow = 160;

bool exactly_once(const std::vector<ItemId>& order, std::uint32_t n) {
  ItemSet seen(n);
  for (const ItemId id : order) seen.insert(id);
  return order.size() == n && seen.count() == n;
}

double between(const StagingWorld& world, const SimJob& job, std::size_t first, std::size_t last) {
  return static_cast<double>(world.fetched_until(job.ended[last]) -
                             world.fetched_until(job.ended[first])) /
         static_cast<double>(last - first);
}

TEST(StagingWorld, OneJobReadsWhatIsNotPinnedAndHitsWhatIs) {
  StagingWorld world(kN, kPinned, kWindow, 4);
  SimJob& job = world.add({.pace = 5, .epochs = 5});
  ASSERT_TRUE(world.run());
  for (const auto& order : job.orders) EXPECT_TRUE(exactly_once(order, kN));
  EXPECT_EQ(job.hits[0], 0u);
  for (std::size_t e = 1; e < 5; ++e) EXPECT_EQ(job.hits[e], kPinned);
  EXPECT_NEAR(between(world, job, 0, 4), kN - kPinned, kWindow / 4.0);
  EXPECT_EQ(job.directed, 0u);
  EXPECT_LE(world.most_staged(), kWindow + 1);
  // At the rate of the link.
  EXPECT_LE(job.ended[4] - job.ended[1], 3 * 1.05 * (kN - kPinned) / 4);
}

// Bound by the link, and by their compute at 0.8 of the link.
TEST(StagingWorld, EqualJobsInPhaseReadOnce) {
  const double missing = kN - kPinned;
  for (const std::size_t jobs : {2u, 3u, 4u, 8u}) {
    for (const bool link_bound : {true, false}) {
      if (!link_bound && jobs > 4) continue;
      StagingWorld world(kN, kPinned, kWindow, 4);
      const double pace = link_bound ? 100 : 0.8 * 4 * kN / missing;
      std::vector<SimJob*> all;
      for (std::size_t i = 0; i < jobs; ++i) {
        all.push_back(&world.add({.seed = i + 1, .pace = pace, .epochs = 6}));
      }
      ASSERT_TRUE(world.run());
      const double limit = std::max(kN / pace, missing / 4);
      EXPECT_LE(between(world, *all[0], 0, 5) / missing, link_bound ? 1.03 : 1.06) << jobs;
      for (const SimJob* job : all) {
        for (const auto& order : job->orders) EXPECT_TRUE(exactly_once(order, kN));
        EXPECT_LE((job->ended[5] - job->ended[0]) / 5.0, 1.05 * limit) << jobs;
      }
    }
  }
}

struct Joined {
  double bytes = 0;                       // of what is missing, per epoch of the first job
  double first = 0, second = 0;           // the same, in the joiner's epochs
  double slow_first = 0, slow_later = 0;  // epochs of the two, in those of a job alone
};

Joined join_at(double phase, double pace, std::uint64_t seed) {
  const double missing = kN - kPinned, alone = std::max(kN / pace, missing / 4);
  StagingWorld world(kN, kPinned, kWindow, 4);
  SimJob& first = world.add({.seed = 2 * seed, .pace = pace, .epochs = 8});
  const auto start = static_cast<std::uint32_t>(alone * (1 + phase));
  SimJob& joiner = world.add({.seed = 2 * seed + 1, .pace = pace, .start = start, .epochs = 6});
  EXPECT_TRUE(world.run());
  Joined joined;
  joined.bytes = between(world, first, 1, 6) / missing;
  joined.first = 1.0 * (world.fetched_until(joiner.ended[0]) - world.fetched_until(start)) /
                 missing / ((joiner.ended[0] - start) / alone);
  joined.second = between(world, joiner, 0, 1) / missing;
  joined.slow_first = (first.ended[6] - first.ended[1]) / 5.0 / alone;
  joined.slow_later = (joiner.ended[5] - joiner.ended[1]) / 4.0 / alone;
  return joined;
}

Joined join_at(double phase, double pace) {
  constexpr int kSeeds = 12;
  Joined mean;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Joined one = join_at(phase, pace, seed);
    mean.bytes += one.bytes / kSeeds;
    mean.first += one.first / kSeeds;
    mean.second += one.second / kSeeds;
    mean.slow_first += one.slow_first / kSeeds;
    mean.slow_later += one.slow_later / kSeeds;
  }
  return mean;
}

// A joiner that the link paces is in phase by its second epoch.
TEST(StagingWorld, ALinkBoundJoinerComesIntoPhase) {
  for (const double phase : {0.3, 0.5, 0.7}) {
    const Joined joined = join_at(phase, 100);
    EXPECT_LE(joined.first, 1.30) << phase;
    EXPECT_LE(joined.second, 1.05) << phase;
    EXPECT_LE(joined.slow_first, 1.05) << phase;
    EXPECT_LE(joined.slow_later, 1.05) << phase;
  }
}

// One that computes for longer than the link needs stays out of phase: fresh orders part it from
// the first, and more than once is read what the oracle of the contract says, or a little more.
TEST(StagingWorld, AComputeBoundJoinerReadsLittleMoreThanFreshOrdersPart) {
  for (const double phase : {0.3, 0.5, 0.7}) {
    const Joined joined = join_at(phase, 3);
    EXPECT_GT(joined.bytes, 1.05) << phase;  // nothing is shared that may not be
    EXPECT_LE(joined.bytes, 1.30) << phase;
    EXPECT_LE(joined.slow_first, 1.05) << phase;
    EXPECT_LE(joined.slow_later, 1.10) << phase;
  }
}

TEST(StagingWorld, SlowRidersSlowNobody) {
  const double link = 1.25 * 4 * (1.0 - 1.0 * kPinned / kN);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    StagingWorld world(kN, kPinned, kN / 20, link);
    SimJob& fast = world.add({.seed = 3 * seed, .pace = 4, .epochs = 9});
    SimJob& middle = world.add({.seed = 3 * seed + 1, .pace = 2, .epochs = 4});
    SimJob& slow = world.add({.seed = 3 * seed + 2, .pace = 1, .epochs = 2});
    ASSERT_TRUE(world.run());
    EXPECT_LE(between(world, fast, 0, 7) / (kN - kPinned), 1.11);
    EXPECT_LE(fast.ended[7] - fast.ended[0], 7 * 1.05 * kN / 4);
    EXPECT_LE(middle.ended[3] - middle.ended[0], 3 * 1.05 * kN / 2);
    EXPECT_LE(slow.ended[1] - slow.ended[0], 1.05 * kN);
  }
}

// S7 over the policy: every pair of epochs, of two jobs that drift apart, for a dozen seeds.
TEST(StagingWorld, EpochsAreIndependent) {
  std::vector<double> correlations;
  std::vector<ItemId> some;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    StagingWorld world(kN, kPinned, kWindow, 4);
    SimJob& a = world.add({.seed = 2 * seed + 1, .pace = 5, .epochs = 6});
    SimJob& b = world.add({.seed = 2 * seed + 2, .pace = 4.6, .epochs = 5});
    ASSERT_TRUE(world.run());
    for (const SimJob* job : {&a, &b}) {
      for (std::size_t e = 1; e < job->orders.size(); ++e) {
        for (std::size_t f = e + 1; f < job->orders.size(); ++f) {
          correlations.push_back(order_correlation(job->orders[e], job->orders[f]));
        }
      }
    }
    some = a.orders[1];
  }
  EXPECT_GT(uncorrelated(correlations, kN), 0.01);
  // The control: an order in which the tenth that was last comes first again is caught.
  std::vector<ItemId> repeated = some;
  std::rotate(repeated.begin(), repeated.end() - kN / 10, repeated.end());
  correlations.push_back(order_correlation(some, repeated));
  EXPECT_LT(uncorrelated(correlations, kN), 1e-9);
}

}  // namespace
}  // namespace quiver::cache
