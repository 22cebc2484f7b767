#include "cache/origin/retry.h"

#include <gtest/gtest.h>

#include <set>

#include "cache/origin/rate_limit.h"

namespace quiver::cache {
namespace {

using std::chrono::milliseconds;

struct RetryTest : ::testing::Test {
  ManualClock clock;
  std::vector<std::int64_t> waits;
  Waiter waiter = [this](milliseconds time, std::stop_token) {
    waits.push_back(time.count());
    clock.advance(time);
    return true;
  };
  Status run(
      RetryPolicy policy, int failures, std::uint64_t seed = 1,
      std::function<std::uint64_t()> progress = [] { return std::uint64_t{0}; }) {
    waits.clear();
    Retrier retrier(policy, clock, seed, waiter);
    return retrier.run(
        [&]() -> std::optional<Failure> {
          if (failures-- == 0) return std::nullopt;
          return Failure{error(Code::kUnreachable, "down"), RetryClass::kServer};
        },
        progress, {});
  }
};

TEST_F(RetryTest, BackOffGrowsWithFullJitter) {
  std::vector<double> sums(5);
  std::set<std::vector<std::int64_t>> different;
  constexpr int kSeeds = 400;
  for (int seed = 0; seed < kSeeds; ++seed) {
    ASSERT_TRUE(run({}, 5, static_cast<std::uint64_t>(seed)));
    ASSERT_EQ(waits.size(), 5u);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_LE(waits[i], 100 << i);
      sums[i] += static_cast<double>(waits[i]);
    }
    different.insert(waits);
  }
  // Uniform over [0, ceiling]: the mean is half of it, within 5 standard errors of 400 draws (7 %).
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(sums[i] / kSeeds / (100 << i), 0.5, 0.075) << i;
  }
  EXPECT_EQ(different.size(), static_cast<std::size_t>(kSeeds));
}

TEST_F(RetryTest, ProgressStartsAttemptsAnewButOnlyRealProgress) {
  std::uint64_t reached = 0;
  EXPECT_TRUE(run({}, 50, 1, [&] { return reached += Retrier::kProgress; }));
  reached = 0;
  EXPECT_FALSE(run({}, 50, 1, [&] { return ++reached; }));
  EXPECT_EQ(waits.size(), 5u);
}

TEST_F(RetryTest, AStoreThatAsksForPatienceGetsItUntilTheBudgetEnds) {
  Retrier retrier({}, clock, 1, waiter);
  int refusals = 0;
  const auto busy = [&](int times) {
    refusals = 0;
    const Instant start = clock.now();
    const bool done = bool(retrier.run(
        [&]() -> std::optional<Failure> {
          if (refusals++ == times) return std::nullopt;
          return Failure{error(Code::kThrottled, "busy"), RetryClass::kThrottled};
        },
        [] { return std::uint64_t{0}; }, {}));
    EXPECT_LE(clock.now() - start, RetryPolicy{}.budget);
    return done;
  };
  EXPECT_TRUE(busy(8));
  EXPECT_FALSE(busy(1000));
}

TEST_F(RetryTest, AStopEndsTheWait) {
  Retrier retrier({}, clock, 1, real_waiter());
  std::stop_source stop;
  int attempts = 0;
  auto done = retrier.run(
      [&]() -> std::optional<Failure> {
        ++attempts;
        stop.request_stop();
        return Failure{error(Code::kThrottled, "busy"), RetryClass::kThrottled,
                       milliseconds(10000)};
      },
      [] { return std::uint64_t{0}; }, stop.get_token());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kCancelled);
  EXPECT_EQ(attempts, 1);
}

TEST(RateLimit, HoldsOverAnyNumberOfReservations) {
  ManualClock clock;
  RateLimit limit(clock);
  const Bytes rate(1'000'000);
  Duration last{};
  for (int i = 0; i < 1000; ++i) last = limit.reserve(Bytes(5000), rate);  // 5 s worth at once
  EXPECT_NEAR(std::chrono::duration<double>(last).count(), 5.0 - 0.05, 0.001);
  clock.advance(last + std::chrono::seconds(10));  // idle time is not saved up beyond the burst
  EXPECT_EQ(limit.reserve(Bytes(50'000), rate), Duration{});
  EXPECT_GT(limit.reserve(Bytes(1000), rate), Duration{});
  EXPECT_EQ(limit.reserve(Bytes(1'000'000'000), Bytes(0)), Duration{});
}

TEST(RateLimit, ReadersOfDifferentLimitsShareItsTime) {
  ManualClock clock;
  RateLimit limit(clock);
  limit.reserve(Bytes(500'000), Bytes(1'000'000));  // half a second of it
  const Duration last = limit.reserve(Bytes(5'000'000), Bytes(10'000'000));
  EXPECT_NEAR(std::chrono::duration<double>(last).count(), 1.0 - 0.05, 0.001);
}

}  // namespace
}  // namespace quiver::cache
