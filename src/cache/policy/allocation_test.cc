#include "cache/policy/allocation.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <random>

#include "cache/policy/testing/exhaustive_division.h"

namespace quiver::cache {
namespace {

using std::chrono::seconds;
using testing::ExhaustiveDivision;

constexpr std::uint64_t kMB = 1'000'000;

DatasetDemand dataset(double megabytes, double window = 0) {
  return {.need = Bytes(static_cast<std::uint64_t>(megabytes * kMB)),
          .window = Bytes(static_cast<std::uint64_t>(window * kMB))};
}
JobDemand job(std::size_t dataset, double megabytes_per_second, double weight = 1) {
  return {.dataset = dataset, .rate = megabytes_per_second * kMB, .weight = weight};
}

// Four datasets that one link cannot feed together. Windows of 2 % occupy up to 1.3 times as much.
Demands four(std::uint64_t cache) {
  Demands demands;
  demands.budget = Bytes(cache * kMB);
  demands.links = {20.0 * kMB};
  const std::vector<std::pair<double, double>> all{{400, 40}, {800, 20}, {300, 5}, {200, 1}};
  for (std::size_t d = 0; d < all.size(); ++d) {
    demands.datasets.push_back(dataset(all[d].first, all[d].first * 0.02 * 1.3));
    demands.jobs.push_back(job(d, all[d].second));
  }
  return demands;
}

double speed_of(const Demands& demands, const Division& division) {
  return forecast(demands, division).speed;
}

TEST(Allocation, FourDatasetsOverOneLink) {
  EXPECT_NEAR(speed_of(four(170), allocate(four(170))), 0.651, 0.0005);
  EXPECT_NEAR(speed_of(four(425), allocate(four(425))), 0.901, 0.0005);
  EXPECT_NEAR(speed_of(four(850), allocate(four(850))), 1.000, 0.0005);
  EXPECT_LT(speed_of(four(425), equal_shares(four(425))), 0.7);
  EXPECT_LT(speed_of(four(425), proportional_shares(four(425))), 0.7);
}

struct Shape {
  int most_datasets, most_jobs, most_links;
};

// Rates over two decades around what the links give: where nothing is scarce all divisions agree.
Demands random_demands(std::uint64_t seed, Shape shape) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<std::size_t>(random() % n); };
  const auto real = [&](double a, double b) {
    return std::uniform_real_distribution<>(a, b)(random);
  };
  const auto wide = [&](double a, double b) { return std::exp(real(std::log(a), std::log(b))); };
  Demands demands;
  const std::size_t datasets = 1 + below(shape.most_datasets), links = 1 + below(shape.most_links);
  for (std::size_t l = 0; l < links; ++l) demands.links.push_back(wide(5, 50) * kMB);
  const bool windows = below(2) == 0, weights = below(2) == 0, limits = below(4) == 0;
  double all = 0;
  for (std::size_t d = 0; d < datasets; ++d) {
    const double size = wide(50, 3000);
    demands.datasets.push_back(dataset(size, windows ? size * wide(0.01, 0.1) : 0));
    demands.datasets.back().link = below(static_cast<int>(links));
    if (limits && below(2) == 0) demands.datasets.back().limit = demands.datasets.back().need / 2;
    all += size;
    for (std::size_t j = 0; j < 1 + below(shape.most_jobs); ++j) {
      demands.jobs.push_back(job(d, wide(0.5, 150), weights ? wide(0.1, 10) : 1));
    }
  }
  demands.budget = Bytes(static_cast<std::uint64_t>(all * wide(0.02, 1.1) * kMB));
  return demands;
}

TEST(Allocation, IsWithinAPercentOfTheBestThereIs) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    const Demands demands = random_demands(seed, {5, 4, 2});
    const int steps[] = {1, 1000, 120, 36, 22};
    const double best = ExhaustiveDivision(demands, steps[demands.datasets.size() - 1]).best();
    RC_ASSERT(speed_of(demands, allocate(demands)) >= 0.99 * best);
  }));
}

TEST(Allocation, TheModelAgreesWithOneWrittenApart) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    const Demands demands = random_demands(seed, {5, 4, 2});
    const Division division = seed % 2 ? allocate(demands) : proportional_shares(demands);
    const auto windows = fitted_windows(demands);
    std::vector<double> pinned;
    for (std::size_t d = 0; d < division.size(); ++d) {
      pinned.push_back(static_cast<double>((division[d] - windows[d]).value));
    }
    RC_ASSERT(std::abs(ExhaustiveDivision(demands, 1).speed(pinned) - speed_of(demands, division)) <
              1e-6);
  }));
}

TEST(Allocation, IsNeverBelowEqualOrProportionalShares) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    const Demands demands = random_demands(seed, {40, 6, 3});
    const double ours = speed_of(demands, allocate(demands));
    RC_ASSERT(ours >= speed_of(demands, equal_shares(demands)) - 1e-6);
    RC_ASSERT(ours >= speed_of(demands, proportional_shares(demands)) - 1e-6);
  }));
}

TEST(Allocation, GivesEachItsWindowNobodyTooMuchAndLeavesNothing) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    Demands demands = random_demands(seed, {40, 6, 3});
    for (JobDemand& its : demands.jobs) {
      if (seed % 3 == 0 && its.dataset % 3 == 0) its.rate = 0;
    }
    if (seed % 5 == 0) demands.links[0] = 0;
    const auto windows = fitted_windows(demands);
    for (const Division& division :
         {allocate(demands), equal_shares(demands), proportional_shares(demands)}) {
      Bytes sum, most;
      for (std::size_t d = 0; d < division.size(); ++d) {
        const Bytes can_use = std::min(demands.datasets[d].need, demands.datasets[d].limit);
        RC_ASSERT(division[d] >= windows[d]);
        RC_ASSERT(division[d] <= can_use);
        sum += division[d];
        most += can_use;
      }
      RC_ASSERT(sum == std::min(demands.budget, most));
    }
  }));
}

TEST(Allocation, RatesThatAreNotKnownGetAnEqualPart) {
  Demands demands;
  demands.budget = Bytes(90 * kMB);
  demands.links = {20.0 * kMB};
  demands.datasets = {dataset(1000), dataset(10), dataset(1000)};
  demands.jobs = {job(0, 0), job(1, 0), job(2, 0)};
  const Division equal{Bytes(40 * kMB), Bytes(10 * kMB), Bytes(40 * kMB)};
  EXPECT_EQ(allocate(demands), equal);
  demands.jobs = {job(0, 10), job(1, 10), job(2, 0)};
  EXPECT_EQ(allocate(demands)[2], Bytes(40 * kMB));
  demands.links = {0};
  demands.jobs = {job(0, 10), job(1, 10), job(2, 1)};
  EXPECT_EQ(allocate(demands), equal);
}

TEST(Allocation, AJobThatIsNotKnownYetCountsAsNoneBesideOneThatIs) {
  Demands demands = four(425);
  const Division before = allocate(demands);
  demands.jobs.push_back(job(1, 0));
  EXPECT_EQ(allocate(demands), before);
}

TEST(Allocation, NothingToDivideAndNobodyToGetIt) {
  EXPECT_EQ(allocate({}), Division{});
  Demands demands = four(0);
  EXPECT_EQ(allocate(demands), Division(4, Bytes(0)));
  demands = four(10'000);
  for (std::size_t d = 0; d < 4; ++d) EXPECT_EQ(allocate(demands)[d], demands.datasets[d].need);
  demands.budget = kNoLimit;
  for (std::size_t d = 0; d < 4; ++d) EXPECT_EQ(allocate(demands)[d], demands.datasets[d].need);
  demands = four(425);
  demands.jobs.clear();
  EXPECT_EQ(allocate(demands), equal_shares(demands));
  demands.datasets[2].need = Bytes(0);
  EXPECT_EQ(allocate(demands)[2], Bytes(0));
}

TEST(Allocation, AWeightCountsAsThatManyJobs) {
  Demands demands;
  demands.budget = Bytes(100 * kMB);
  demands.links = {10.0 * kMB};
  demands.datasets = {dataset(100), dataset(100)};
  demands.jobs = {job(0, 20, 1), job(1, 20, 3)};
  EXPECT_EQ(allocate(demands)[1], Bytes(100 * kMB));
  demands.jobs = {job(0, 20, 3), job(1, 20, 1)};
  EXPECT_EQ(allocate(demands)[0], Bytes(100 * kMB));
}

TEST(Allocation, ALimitHoldsWhateverItWouldGain) {
  Demands demands = four(425);
  demands.datasets[0].limit = Bytes(50 * kMB);
  const Division division = allocate(demands);
  EXPECT_LE(division[0], Bytes(50 * kMB));
  EXPECT_GT(division[1], Bytes(250 * kMB));
  demands.datasets.resize(1);
  demands.jobs.resize(1);
  EXPECT_EQ(allocate(demands)[0], Bytes(50 * kMB));
}

TEST(Allocation, ADivisionIsTrimmedToItsBudget) {
  const Division division{Bytes(10), Bytes(50), Bytes(20)};
  EXPECT_EQ(trimmed(division, Bytes(100)), division);
  EXPECT_EQ(trimmed(division, Bytes(70)), (Division{Bytes(10), Bytes(40), Bytes(20)}));
  EXPECT_EQ(trimmed(division, Bytes(15)), (Division{Bytes(10), Bytes(0), Bytes(5)}));
}

// The mean speed of the jobs of others, times their weights.
double of_others(const Demands& demands, const Forecast& forecast, std::size_t liar) {
  double sum = 0;
  for (std::size_t j = 0; j < demands.jobs.size(); ++j) {
    if (j == liar) continue;
    sum += demands.jobs[j].weight * forecast.jobs[j] / demands.jobs[j].rate;
  }
  return sum;
}

// Against the division that would be best for the others alone, on the same link.
TEST(Allocation, WhatAJobTakesFromTheOthersIsAtMostItsWeightWhateverItSaysOfItself) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed, std::uint8_t lie) {
    Demands demands = random_demands(seed, {5, 3, 2});
    const std::size_t liar = seed % demands.jobs.size();
    demands.jobs[liar].rate *= std::exp2(lie % 25 - 12.0);
    Demands without = demands;
    without.jobs[liar].weight = 1e-9;
    const double best = of_others(demands, forecast(demands, allocate(without)), liar);
    const double now = of_others(demands, forecast(demands, allocate(demands)), liar);
    double weights = 0;
    for (const JobDemand& its : demands.jobs) weights += its.weight;
    RC_ASSERT(now >= best - demands.jobs[liar].weight - 0.01 * weights);
  }));
}

// Once a second somebody looks at estimates that are off by up to `noise`.
struct Watch {
  std::mt19937_64 random{5};
  Adoption adoption;
  Instant now{};
  Division present;
  int adopted = 0;
  double noise = 0.1;

  void look(Demands demands) {
    const auto wander = [&] {
      return std::uniform_real_distribution<>(1 - noise, 1 + noise)(random);
    };
    for (JobDemand& its : demands.jobs) its.rate *= wander();
    for (double& link : demands.links) link *= wander();
    now += seconds(1);
    if (auto found = adoption.look(demands, present, now)) {
      present = std::move(*found);
      ++adopted;
    }
  }
};

TEST(Adoption, NoiseMovesNothing) {
  for (const std::uint64_t cache : {170, 300, 425, 600, 850}) {
    Watch watch;
    watch.random.seed(cache);
    watch.present = allocate(four(cache));
    for (int second = 0; second < 1000; ++second) watch.look(four(cache));
    EXPECT_LE(watch.adopted, 1) << "cache of " << cache << " MB";
  }
}

TEST(Adoption, AChangeOfSpeedIsAdoptedWithinTenSeconds) {
  Demands demands = four(425);
  demands.jobs[0].rate = 2.0 * kMB;  // A hardly computes
  Watch watch;
  watch.present = allocate(demands);
  EXPECT_LT(speed_of(four(425), watch.present), 0.8);
  for (int second = 0; second < 10; ++second) watch.look(four(425));
  EXPECT_GE(watch.adopted, 1);
  EXPECT_GT(speed_of(four(425), watch.present), 0.97 * 0.901);
}

TEST(Adoption, AnOutlierIsNoReasonAndASmallGainIsNone) {
  Watch watch;
  watch.noise = 0;
  watch.present = allocate(four(425));
  Demands other = four(425);
  other.jobs[0].rate = 1.0 * kMB;
  for (int second = 0; second < 60; ++second) watch.look(second % 4 == 0 ? other : four(425));
  EXPECT_EQ(watch.adopted, 0);
  Demands hardly = four(425);
  hardly.jobs[1].rate *= 1.02;
  for (int second = 0; second < 60; ++second) watch.look(hardly);
  EXPECT_EQ(watch.adopted, 0);
}

}  // namespace
}  // namespace quiver::cache
