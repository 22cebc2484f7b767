#include "cache/policy/cache_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quiver::cache {
namespace {

constexpr double kMB = 1e6;

Demands one(double share_of_cache) {
  Demands demands;
  demands.budget = Bytes(static_cast<std::uint64_t>(100 * kMB * share_of_cache));
  demands.datasets = {{.need = Bytes(100'000'000)}};
  demands.jobs = {{.dataset = 0, .rate = 20 * kMB}};
  demands.links = {10 * kMB};
  return demands;
}

TEST(CacheModel, AMissingPartIsReadAtTheRateOfTheLink) {
  EXPECT_DOUBLE_EQ(forecast(one(0), {Bytes(0)}).jobs[0], 10 * kMB);
  EXPECT_DOUBLE_EQ(forecast(one(0.25), {Bytes(25'000'000)}).jobs[0], 10 * kMB / 0.75);
  EXPECT_DOUBLE_EQ(forecast(one(0.5), {Bytes(50'000'000)}).jobs[0], 20 * kMB);
  EXPECT_DOUBLE_EQ(forecast(one(0.9), {Bytes(90'000'000)}).jobs[0], 20 * kMB);
  EXPECT_DOUBLE_EQ(forecast(one(0.9), {Bytes(90'000'000)}).datasets[0].link, 2 * kMB);
  EXPECT_DOUBLE_EQ(forecast(one(0.25), {Bytes(25'000'000)}).speed, 2.0 / 3);
}

TEST(CacheModel, OneReadServesAllJobsOfADataset) {
  Demands demands = one(0.25);
  demands.jobs = {{.dataset = 0, .rate = 20 * kMB}, {.dataset = 0, .rate = 5 * kMB}};
  const Forecast its = forecast(demands, {Bytes(25'000'000)});
  EXPECT_DOUBLE_EQ(its.jobs[0], 10 * kMB / 0.75);
  EXPECT_DOUBLE_EQ(its.jobs[1], 5 * kMB);
  EXPECT_DOUBLE_EQ(its.datasets[0].asked, 15 * kMB);
}

TEST(CacheModel, TheWindowHoldsNothingUnlessAllFits) {
  EXPECT_DOUBLE_EQ(missing_part(Bytes(100), Bytes(10), Bytes(60)), 0.5);
  EXPECT_DOUBLE_EQ(missing_part(Bytes(100), Bytes(10), Bytes(5)), 1);
  EXPECT_DOUBLE_EQ(missing_part(Bytes(100), Bytes(10), Bytes(100)), 0);
  EXPECT_DOUBLE_EQ(missing_part(Bytes(0), Bytes(0), Bytes(0)), 0);
}

TEST(CacheModel, WindowsThatAreTooMuchTogetherShrinkInProportion) {
  Demands demands;
  demands.budget = Bytes(60);
  demands.datasets = {{.need = Bytes(1000), .window = Bytes(40)},
                      {.need = Bytes(1000), .window = Bytes(20)}};
  EXPECT_EQ(fitted_windows(demands), (std::vector{Bytes(20), Bytes(10)}));
  demands.budget = Bytes(120);
  EXPECT_EQ(fitted_windows(demands), (std::vector{Bytes(40), Bytes(20)}));
}

TEST(CacheModel, ALinkIsSharedMaxMin) {
  EXPECT_DOUBLE_EQ(fair_level({40, 20, 5, 1}, 20), 7);
  EXPECT_DOUBLE_EQ(fair_level({3, 3}, 4), 2);
  EXPECT_TRUE(std::isinf(fair_level({3, 3}, 6)));
  EXPECT_TRUE(std::isinf(fair_level({0, 0}, 0)));
  EXPECT_TRUE(std::isinf(fair_level({}, 10)));
  EXPECT_DOUBLE_EQ(fair_level({5, 0}, 0), 0);
}

TEST(CacheModel, WhatIsNotKnownAsksNothingAndIsNotCounted) {
  Demands demands = one(0.25);
  demands.jobs.push_back({.dataset = 0, .rate = 0});
  EXPECT_DOUBLE_EQ(forecast(demands, {Bytes(25'000'000)}).speed, 2.0 / 3);
  demands.links = {0};
  EXPECT_DOUBLE_EQ(forecast(demands, {Bytes(25'000'000)}).speed, 1);
  EXPECT_DOUBLE_EQ(forecast({}, {}).speed, 1);
}

}  // namespace
}  // namespace quiver::cache
