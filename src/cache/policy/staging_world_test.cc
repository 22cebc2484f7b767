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

TEST(StagingWorld, TwoEqualJobsInPhaseReadOnce) {
  StagingWorld world(kN, kPinned, kWindow, 4);
  SimJob& a = world.add({.seed = 1, .pace = 5, .epochs = 5});
  SimJob& b = world.add({.seed = 2, .pace = 5, .epochs = 5});
  ASSERT_TRUE(world.run());
  for (const SimJob* job : {&a, &b}) {
    for (const auto& order : job->orders) EXPECT_TRUE(exactly_once(order, kN));
  }
  EXPECT_NEAR(between(world, a, 0, 4) / (kN - kPinned), 1.0, 0.01);
}

// The control of the test above: jobs that drift apart read more than once what fresh orders part.
TEST(StagingWorld, JobsThatDriftApartReadMore) {
  StagingWorld world(kN, kPinned, kWindow, 8);
  SimJob& a = world.add({.seed = 1, .pace = 5, .epochs = 12});
  world.add({.seed = 2, .pace = 4.5, .start = 400, .epochs = 11});
  ASSERT_TRUE(world.run());
  const double factor = between(world, a, 0, 11) / (kN - kPinned);
  EXPECT_GT(factor, 1.02);
  EXPECT_LT(factor, 1.3);
}

TEST(StagingWorld, SlowRidersSlowNobody) {
  const double link = 1.25 * 4 * (1.0 - 1.0 * kPinned / kN);
  StagingWorld alone(kN, kPinned, kN / 20, link), shared(kN, kPinned, kN / 20, link);
  SimJob& reference = alone.add({.seed = 1, .pace = 4, .epochs = 9});
  ASSERT_TRUE(alone.run());
  SimJob& fast = shared.add({.seed = 1, .pace = 4, .epochs = 9});
  SimJob& middle = shared.add({.seed = 2, .pace = 2, .epochs = 4});
  SimJob& slow = shared.add({.seed = 3, .pace = 1, .epochs = 2});
  ASSERT_TRUE(shared.run());
  const auto steady = [](const SimJob& job) { return 1.0 * (job.ended[7] - job.ended[0]); };
  EXPECT_LE(steady(fast) / steady(reference), 1.05);
  EXPECT_LE(between(shared, fast, 0, 7) / (kN - kPinned), 1.11);
  // What passes is just enough for the riders on average; noise costs them a little.
  EXPECT_LE(middle.ended[3] - middle.ended[0], 3 * 1.15 * kN / 2);
  EXPECT_LE(slow.ended[1] - slow.ended[0], 1.15 * kN);
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
