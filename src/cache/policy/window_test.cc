#include "cache/policy/window.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace quiver::cache {
namespace {

constexpr Bytes kMB = Bytes(1'000'000);

WindowInputs inputs() {
  return {.dataset = kMB * 10'000, .share = kMB * 2'000, .step = kMB * 5};
}

TEST(Window, IsTwoPerCentOfTheDataset) {
  const Window w = compute_window(inputs());
  EXPECT_EQ(w.window, kMB * 200);
  EXPECT_EQ(w.pinned, kMB * 1'800);
}

TEST(Window, HoldsTheMissesOfTwentySteps) {
  WindowInputs in = inputs();
  in.step = kMB * 20;
  const Window w = compute_window(in);
  const double missing = 1.0 - static_cast<double>(w.pinned.value) / 1e10;
  EXPECT_NEAR(static_cast<double>(w.window.value), 20 * 20e6 * missing, 1e6);
}

TEST(Window, HoldsFiveSecondsOfTheLinkAndTwiceWhatWasDrawn) {
  WindowInputs in = inputs();
  in.link_per_second = kMB * 100;
  EXPECT_EQ(compute_window(in).window, kMB * 500);
  in.drawn_unread = kMB * 400;
  EXPECT_EQ(compute_window(in).window, kMB * 800);
}

TEST(Window, IsAtMostHalfTheShare) {
  WindowInputs in = inputs();
  in.link_per_second = kMB * 10'000;
  const Window w = compute_window(in);
  EXPECT_EQ(w.window, kMB * 1'000);
  EXPECT_EQ(w.pinned, kMB * 1'000);
}

TEST(Window, WhatIsSetAsideForItMayBeAllOfTheShare) {
  WindowInputs in = inputs();
  in.share = in.set_aside = kMB * 250;
  in.step = kMB * 20;
  EXPECT_EQ(compute_window(in).window, kMB * 250);
  EXPECT_EQ(compute_window(in).pinned, Bytes(0));
  in.share = kMB * 1'000;
  EXPECT_GT(compute_window(in).window, kMB * 250);
}

TEST(Window, ASettingOverridesTheRule) {
  WindowInputs in = inputs();
  in.fixed = kMB * 30;
  EXPECT_EQ(compute_window(in).window, kMB * 30);
  EXPECT_EQ(compute_window(in).pinned, kMB * 1'970);
}

TEST(Window, HoldsAFewStepsWhateverIsFixedAndWhateverThatLeavesToPin) {
  WindowInputs in{.dataset = kMB * 8, .share = kMB * 2, .step = Bytes(160'000)};
  in.fixed = Bytes(200'000);
  EXPECT_GT(compute_window(in).window, Bytes(500'000));
  EXPECT_EQ(compute_window(in).window + compute_window(in).pinned, in.share);
  in.step = Bytes(400'000);
  EXPECT_GT(compute_window(in).window, Bytes(1'300'000)) << "more than half the share";
  in.step = kMB;
  EXPECT_EQ(compute_window(in).window, in.share);
  EXPECT_FALSE(too_small_for_steps(in));
  in.step = Bytes(1'000'001);
  EXPECT_TRUE(too_small_for_steps(in));
  in.share = in.dataset;
  EXPECT_FALSE(too_small_for_steps(in)) << "nothing is staged";
}

// Of any size and rate, as small and as odd as they may be.
WindowInputs any_inputs() {
  const auto bytes = [](int most_bits) {
    return Bytes(*rc::gen::inRange<std::uint64_t>(0, 1ull << *rc::gen::inRange(1, most_bits)));
  };
  return {.dataset = bytes(44),
          .share = bytes(44),
          .step = bytes(36),
          .drawn_unread = bytes(32),
          .link_per_second = bytes(34),
          .fixed = *rc::gen::arbitrary<bool>() ? bytes(40) : Bytes(0),
          .set_aside = bytes(40)};
}

TEST(Window, AlwaysHoldsTheMissesOfFourStepsOrAllOfTheShare) {
  EXPECT_TRUE(rc::check([] {
    const WindowInputs in = any_inputs();
    const Window w = compute_window(in);
    RC_ASSERT(w.window <= in.share);
    const bool fits = in.share >= in.dataset;
    RC_ASSERT(w.pinned == (fits ? in.share : in.share - w.window));
    if (fits) return;
    const double pinned = static_cast<double>(w.pinned.value);
    const double missing = 1 - pinned / static_cast<double>(in.dataset.value);
    const double steps = 4 * static_cast<double>(in.step.value) * missing;
    // A few rounds settle it to a hundredth.
    RC_ASSERT(w.window == in.share || static_cast<double>(w.window.value) >= 0.99 * steps - 1);
  }));
}

TEST(Window, WhatIsFixedIsWhatIsGivenWhereItHoldsFourStepsAndIsAtMostHalfTheShare) {
  EXPECT_TRUE(rc::check([] {
    WindowInputs in = any_inputs();
    in.fixed = std::max(in.fixed, in.step * 4);
    RC_PRE(in.fixed.value > 0);
    const Bytes most = std::max(in.share / 2, std::min(in.share, in.set_aside));
    if (in.fixed <= most) RC_ASSERT(compute_window(in).window == in.fixed);
    in.step = Bytes(0);
    RC_ASSERT(compute_window(in).window == std::min(in.fixed, most));
  }));
}

TEST(Window, ADatasetThatFitsIsPinnedWhole) {
  WindowInputs in = inputs();
  in.share = in.dataset;
  EXPECT_EQ(compute_window(in).pinned, in.share);
}

TEST(Window, SmallChangesAreNotWorthMovingPins) {
  EXPECT_FALSE(worth_changing(kMB * 100, kMB * 120));
  EXPECT_FALSE(worth_changing(kMB * 100, kMB * 60));
  EXPECT_TRUE(worth_changing(kMB * 100, kMB * 130));
  EXPECT_TRUE(worth_changing(kMB * 100, kMB * 40));
}

}  // namespace
}  // namespace quiver::cache
