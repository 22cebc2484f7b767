#include "cache/policy/window.h"

#include <gtest/gtest.h>

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
