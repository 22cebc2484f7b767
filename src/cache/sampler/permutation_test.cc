#include "cache/sampler/permutation.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numeric>
#include <set>

#include "cache/sampler/testing/statistics.h"

namespace quiver::cache {
namespace {

using testing::chi_square;
using testing::chi_square_p_value;
using testing::correlation;
using testing::uniform_p_value;
using Items = std::vector<std::uint32_t>;

Key nth_key(std::uint64_t i) {
  return derive_key(i, 0, Purpose::kStrictOrder);
}

Items all_of(const Permutation& p) {
  Items items(p.size());
  p.fill(0, 1, items);
  return items;
}

// The number of a permutation in lexicographic order.
std::size_t index_of(const Items& items) {
  std::size_t index = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::size_t smaller = 0;
    for (std::size_t j = i + 1; j < items.size(); ++j) smaller += items[j] < items[i] ? 1 : 0;
    index = index * (items.size() - i) + smaller;
  }
  return index;
}

// How unlikely the counts of all n! permutations are over keys, were they equally likely.
template <class Shuffle>
double all_permutations_p_value(std::uint32_t n, Shuffle&& shuffled) {
  std::size_t kinds = 1;
  for (std::uint32_t i = 2; i <= n; ++i) kinds *= i;
  std::vector<double> seen(kinds);
  for (std::uint64_t key = 0; key < 100 * kinds + 1000; ++key) ++seen[index_of(shuffled(key, n))];
  return uniform_p_value(seen);
}

TEST(PermutationTest, GoldenValues) {
  const Key key = derive_key(42, 7, Purpose::kStrictOrder);
  EXPECT_EQ(key, (Key{0x52eab5640c5336b7, 0xde5901cca960c}));
  EXPECT_EQ(all_of(Permutation(key, 10)), (Items{7, 5, 0, 3, 1, 2, 4, 8, 9, 6}));
  const Permutation million(key, 1'000'000);
  EXPECT_EQ((Items{million.at(0), million.at(1), million.at(999'999)}),
            (Items{852095, 543885, 384317}));
  const Permutation most(key, 4'294'967'295u);
  EXPECT_EQ((Items{most.at(0), most.at(1), most.at(4'294'967'294u)}),
            (Items{32529942u, 1377629453u, 1754289394u}));
  Stream stream(key);
  EXPECT_EQ(stream.next(), 8696547058947560337u);
  EXPECT_EQ(stream.below(1000), 643u);
  EXPECT_EQ(hypergeometric(stream, 1000, 300, 100), 38u);
  EXPECT_EQ(item_seed(42, 7, ItemId(3)), 13415707517488565155u);
}

TEST(PermutationTest, IsABijectionWithItsInverseForEveryN) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    const auto n = *rc::gen::inRange<std::uint32_t>(1, 3000);
    const Permutation p(nth_key(seed), n);
    const Items items = all_of(p);
    std::vector<bool> seen(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      RC_ASSERT(items[i] < n && !seen[items[i]]);
      seen[items[i]] = true;
      RC_ASSERT(p.at(i) == items[i]);
      RC_ASSERT(p.position_of(items[i]) == i);
    }
    Items back = items;
    p.positions_of(back);
    for (std::uint32_t i = 0; i < n; ++i) RC_ASSERT(back[i] == i);
  }));
}

TEST(PermutationTest, InverseHoldsUpToTheLargestN) {
  for (const std::uint32_t n : {65'537u, 10'000'000u, 2'147'483'648u, 4'294'967'295u}) {
    const Permutation p(nth_key(n), n);
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const auto place = static_cast<std::uint32_t>(i * (n - 1) / 999);
      ASSERT_LT(p.at(place), n);
      ASSERT_EQ(p.position_of(p.at(place)), place);
    }
  }
}

TEST(PermutationTest, FillTakesStrides) {
  const Permutation p(nth_key(5), 1000);
  for (const std::size_t count : {0u, 1u, 7u, 8u, 9u, 125u}) {
    Items out(count);
    p.fill(3, 7, out);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(out[i], p.at(static_cast<std::uint32_t>(3 + 7 * i)));
    }
  }
}

TEST(PermutationTest, AllPermutationsOfTinySetsAreEquallyLikely) {
  for (std::uint32_t n = 2; n <= 6; ++n) {
    EXPECT_GT(all_permutations_p_value(n,
                                       [](std::uint64_t key, std::uint32_t size) {
                                         return all_of(Permutation(nth_key(key), size));
                                       }),
              0.001)
        << n;
  }
  EXPECT_EQ(Permutation(nth_key(1), 1).at(0), 0u);
}

// Negative control: the shuffle that swaps each place with any other place is biased.
TEST(PermutationTest, TheTinyTestRefusesTheNaiveShuffle) {
  EXPECT_LT(all_permutations_p_value(4,
                                     [](std::uint64_t key, std::uint32_t n) {
                                       Items items(n);
                                       std::iota(items.begin(), items.end(), 0);
                                       Stream random(nth_key(key));
                                       for (auto& item : items) {
                                         std::swap(item, items[random.below(n)]);
                                       }
                                       return items;
                                     }),
            1e-6);
}

TEST(PermutationTest, EveryItemIsAtEveryPositionEquallyOften) {
  constexpr std::uint32_t kN = 100;
  std::vector<double> seen(kN * kN);
  for (std::uint64_t key = 0; key < 10'000; ++key) {
    const Items items = all_of(Permutation(nth_key(key), kN));
    for (std::uint32_t i = 0; i < kN; ++i) ++seen[i * kN + items[i]];
  }
  const double x = chi_square(seen, std::vector<double>(seen.size(), 100.0));
  const double p = chi_square_p_value(x, (kN - 1) * (kN - 1));
  EXPECT_GT(std::min(p, 1 - p), 0.001);
}

// The bits of a round are only pairwise independent over arithmetic progressions of pairs; after
// all rounds nothing of that may be left in three places in a row, nor in their ids.
TEST(PermutationTest, NeighboursAreIndependent) {
  constexpr std::uint32_t kN = 31;
  std::vector<double> places, values;
  places.assign(kN * kN, 0), values.assign(kN * kN, 0);
  for (std::uint64_t key = 0; key < 200'000; ++key) {
    const Permutation p(nth_key(key), kN);
    const auto i = static_cast<std::uint32_t>(key % (kN - 2));
    const auto count = [](std::vector<double>& seen, std::uint32_t a, std::uint32_t b,
                          std::uint32_t c) { ++seen[(b + kN - a) % kN * kN + (c + kN - b) % kN]; };
    count(places, p.at(i), p.at(i + 1), p.at(i + 2));
    count(values, p.position_of(i), p.position_of(i + 1), p.position_of(i + 2));
  }
  for (auto* table : {&places, &values}) {
    std::vector<double> possible;  // two steps, neither of them nor their sum a return
    for (std::uint32_t d = 1; d < kN; ++d) {
      for (std::uint32_t e = 1; e < kN; ++e) {
        if ((d + e) % kN != 0) possible.push_back((*table)[d * kN + e]);
      }
    }
    EXPECT_GT(uniform_p_value(possible), 0.001);
  }
}

// S7 of the permutation itself.
TEST(PermutationTest, EpochsSeedsAndPurposesAreIndependent) {
  constexpr std::uint32_t kN = 40'000;
  std::vector<std::vector<double>> orders;
  const auto add = [&](std::uint64_t seed, std::uint64_t epoch, Purpose purpose) {
    const Items items = all_of(Permutation(derive_key(seed, epoch, purpose), kN));
    orders.emplace_back(items.begin(), items.end());
  };
  for (std::uint64_t epoch = 0; epoch < 8; ++epoch) add(1, epoch, Purpose::kStrictOrder);
  for (std::uint64_t seed = 2; seed < 6; ++seed) add(seed, 0, Purpose::kStrictOrder);
  for (const auto purpose : {Purpose::kFetchOrder, Purpose::kDraw, Purpose::kOwnOrder}) {
    add(1, 0, purpose);
  }
  std::vector<double> correlations;
  for (std::size_t a = 0; a < orders.size(); ++a) {
    for (std::size_t b = a + 1; b < orders.size(); ++b) {
      correlations.push_back(correlation(orders[a], orders[b]));
    }
  }
  EXPECT_GT(testing::uncorrelated(correlations, kN), 0.01);
  correlations.push_back(correlation(orders[0], orders[0]));
  EXPECT_LT(testing::uncorrelated(correlations, kN), 1e-9);
}

TEST(StreamTest, BelowIsUniform) {
  Stream random(nth_key(9));
  for (const std::size_t bound : {1u, 2u, 7u, 1000u}) {
    std::vector<double> seen(bound);
    for (std::size_t i = 0; i < 100 * bound; ++i) ++seen[random.below(bound)];
    if (bound > 1) {
      EXPECT_GT(uniform_p_value(seen), 0.001) << bound;
    }
  }
  std::vector<double> thirds(3);  // a bound for which plain modulo would be far from uniform
  const std::uint64_t third = ~std::uint64_t{0} / 4;
  for (int i = 0; i < 30'000; ++i) ++thirds[random.below(3 * third) / third];
  EXPECT_GT(uniform_p_value(thirds), 0.001);
  std::vector<double> tenths(10);
  for (int i = 0; i < 10'000; ++i) ++tenths[static_cast<std::size_t>(random.unit() * 10)];
  EXPECT_GT(uniform_p_value(tenths), 0.001);
}

double log_choose(double n, double k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

TEST(HypergeometricTest, MatchesTheExactDistribution) {
  struct Case {
    std::uint64_t total, marked, draws;
  };
  for (const auto [total, marked, draws] : {Case{10, 4, 3}, Case{10, 4, 8}, Case{1000, 800, 64},
                                            Case{100'000, 20'000, 256}, Case{300, 150, 299}}) {
    constexpr int kTries = 20'000;
    Stream random(nth_key(total));
    std::vector<double> all(draws + 1), seen, expected;
    for (int i = 0; i < kTries; ++i) ++all[hypergeometric(random, total, marked, draws)];
    double rare_seen = 0, rare_expected = 0;
    for (std::uint64_t k = 0; k <= draws; ++k) {
      double e = 0;
      if (k <= marked && draws - k <= total - marked) {
        const auto d = [](std::uint64_t v) { return static_cast<double>(v); };
        e = kTries *
            std::exp(log_choose(d(marked), d(k)) + log_choose(d(total - marked), d(draws - k)) -
                     log_choose(d(total), d(draws)));
      }
      if (e == 0) {
        EXPECT_EQ(all[k], 0) << k;
      } else if (e < 5) {
        rare_seen += all[k], rare_expected += e;
      } else {
        seen.push_back(all[k]), expected.push_back(e);
      }
    }
    if (rare_expected > 1) seen.push_back(rare_seen), expected.push_back(rare_expected);
    EXPECT_GT(chi_square_p_value(chi_square(seen, expected), static_cast<double>(seen.size() - 1)),
              0.001)
        << total;
  }
}

TEST(HypergeometricTest, KnowsItsLimits) {
  Stream random(nth_key(3));
  EXPECT_EQ(hypergeometric(random, 0, 0, 0), 0u);
  EXPECT_EQ(hypergeometric(random, 10, 10, 4), 4u);
  EXPECT_EQ(hypergeometric(random, 10, 0, 4), 0u);
  EXPECT_EQ(hypergeometric(random, 10, 3, 10), 3u);
}

// S13: whoever decodes an item gives it the same random state; no two items or epochs share one.
TEST(ItemSeedTest, DependsOnSeedEpochAndIdAlone) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
      for (std::uint32_t id = 0; id < 100; ++id) seen.insert(item_seed(seed, epoch, ItemId(id)));
    }
  }
  EXPECT_EQ(seen.size(), 10'000u);
  std::vector<double> bits(64);
  for (const std::uint64_t value : seen) {
    for (std::size_t b = 0; b < 64; ++b) bits[b] += static_cast<double>(value >> b & 1);
  }
  for (const double ones : bits) EXPECT_NEAR(ones, 5000, 250);
}

}  // namespace
}  // namespace quiver::cache
