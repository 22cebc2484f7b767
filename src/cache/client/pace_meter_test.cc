#include "cache/client/pace_meter.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

namespace quiver::cache {
namespace {

using std::chrono::milliseconds;

LoopStep step_of(std::uint32_t items, Duration loop) {
  return {.items = items, .loop = loop};
}

TEST(PaceMeter, IsNotToldBeforeItIsKnown) {
  PaceMeter meter;
  for (int i = 0; i < 11; ++i) {
    meter.add(step_of(32, milliseconds(10)));
    EXPECT_EQ(meter.pace(), Pace{});
  }
  meter.add(step_of(32, milliseconds(10)));
  EXPECT_NEAR(meter.pace().items_per_second, 3200, 1e-6);
  EXPECT_EQ(meter.pace().steps, 12u);
  EXPECT_EQ(meter.pace().error, 0);
}

TEST(PaceMeter, AnUnsteadyLoopIsToldLaterWithItsError) {
  PaceMeter meter;
  int told = 0;
  for (int i = 0; i < 64; ++i) {
    const bool slow = i / 4 % 2 == 1;  // whole groups
    meter.add(step_of(10, milliseconds(slow ? 200 : 10)));
    told += meter.pace().steps != 0 ? 1 : 0;
  }
  EXPECT_LT(told, 12);
  EXPECT_GT(meter.pace().items_per_second, 50);
  EXPECT_LT(meter.pace().items_per_second, 1000);
  EXPECT_GT(meter.pace().error, 0.1);
}

TEST(PaceMeter, EveryFourthStepMayBeLong) {
  PaceMeter meter;
  for (int i = 0; i < 64; ++i) meter.add(step_of(8, milliseconds(i % 4 == 3 ? 50 : 10)));
  EXPECT_NEAR(meter.pace().items_per_second, 8 / 0.020, 1);
}

TEST(PaceMeter, APauseForACheckpointIsNotTheLoopsPace) {
  PaceMeter meter;
  for (int i = 0; i < 64; ++i) {
    meter.add(step_of(8, milliseconds(i == 20 || i == 50 ? 60'000 : 10)));
  }
  EXPECT_NEAR(meter.pace().items_per_second, 800, 8);
}

TEST(PaceMeter, FollowsALoopThatChanges) {
  PaceMeter meter;
  for (int i = 0; i < 200; ++i) meter.add(step_of(8, milliseconds(10)));
  for (int i = 0; i < 68; ++i) meter.add(step_of(8, milliseconds(40)));
  EXPECT_NEAR(meter.pace().items_per_second, 200, 1);
}

TEST(PaceMeter, WithoutComputeItIsLargeAndFinite) {
  PaceMeter meter;
  for (int i = 0; i < 64; ++i) meter.add(step_of(256, Duration(0)));
  EXPECT_GT(meter.pace().items_per_second, 1e6);
  EXPECT_TRUE(std::isfinite(meter.pace().items_per_second));
}

TEST(PaceMeter, WorkersThatCannotKeepUpSetThePace) {
  PaceMeter meter;
  for (int i = 0; i < 32; ++i) {
    meter.add({.items = 10, .loop = milliseconds(5), .decoding = milliseconds(80), .workers = 4});
  }
  EXPECT_NEAR(meter.pace().items_per_second, 10 / 0.020, 1);
}

// Whatever is given it is finite, and whatever is told lies within what the steps say.
TEST(PaceMeter, IsWithinTheStepsItWasMadeOf) {
  EXPECT_TRUE(rc::check([] {
    PaceMeter meter;
    double least = INFINITY, most = 0;
    const auto steps = *rc::gen::container<std::vector<std::pair<std::uint32_t, std::uint32_t>>>(
        rc::gen::pair(rc::gen::inRange(1u, 1000u), rc::gen::inRange(0u, 1'000'000u)));
    for (const auto& [items, us] : steps) {
      meter.add(step_of(items, std::chrono::microseconds(us)));
      const double rate = items / std::max(us * 1e-6, 1e-6);
      least = std::min(least, rate);
      most = std::max(most, rate);
      const Pace pace = meter.pace();
      RC_ASSERT(std::isfinite(pace.items_per_second) && std::isfinite(pace.error));
      if (pace.steps == 0) continue;
      RC_ASSERT(pace.items_per_second >= least * 0.999);
      RC_ASSERT(pace.items_per_second <= most * 1.001);
    }
  }));
}

}  // namespace
}  // namespace quiver::cache
