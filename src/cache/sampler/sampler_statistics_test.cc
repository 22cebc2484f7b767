// S3 to S7 of the sampling contract on the substituting sampler behind a simulated link, each with
// a policy that has to fail.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "cache/sampler/epoch_sampler.h"
#include "cache/sampler/testing/drive.h"
#include "cache/sampler/testing/statistics.h"

namespace quiver::cache {
namespace {

using testing::Order;

// A dataset behind a slow link: a fifth is resident; one item in ten is ten times as long; items
// are sorted by class, as on disk.
struct World {
  std::uint32_t n = 20'000, batch = 64, classes = 10;
  std::uint64_t seed = 1;
  double resident = 0.2;
  std::vector<double> size;
  ItemSet settled;

  explicit World(std::uint64_t s, std::uint32_t items = 20'000, double f = 0.2)
      : n(items), seed(s), resident(f), settled(testing::resident_part(items, f, s)) {
    Stream random(derive_key(Key{s, 5}, 0));
    for (std::uint32_t i = 0; i < n; ++i) size.push_back(random.below(10) == 0 ? 10 : 1);
  }

  std::uint32_t class_of(std::uint32_t id) const {
    return static_cast<std::uint32_t>(std::uint64_t{id} * classes / n);
  }

  Order arriving(std::uint64_t epoch) const { return testing::arrivals(n, seed, epoch, size); }

  Order epoch_over(std::uint64_t epoch, const Order& arrivals) const {
    const EpochOptions options{.seed = seed, .epoch = epoch, .batch_size = batch, .pads = {}};
    auto sampler = make_substituting_sampler(options, ItemSet(n, true), settled);
    return testing::flatten(testing::drive(*sampler, arrivals, 20 * batch, seed + epoch));
  }
  Order epoch(std::uint64_t e) const { return epoch_over(e, arriving(e)); }

  // What must not be: whatever is resident first, mixed with the ten batches fetched ahead.
  Order hits_first(std::uint64_t e) const {
    Stream random(derive_key(seed, e, Purpose::kDraw));
    Order pool, order, missing;
    for (const std::uint32_t id : arriving(e)) {
      (settled.contains(ItemId(id)) ? pool : missing).push_back(id);
    }
    std::size_t fetched = 0, staged = 0;
    while (order.size() < n) {
      for (; staged < 10 * batch && fetched < missing.size(); ++staged) {
        pool.push_back(missing[fetched++]);
      }
      std::swap(pool[random.below(pool.size())], pool.back());
      staged -= settled.contains(ItemId(pool.back())) ? 0 : 1;
      order.push_back(pool.back());
      pool.pop_back();
    }
    return order;
  }
};

// The data in consecutive blocks, in a fresh order each epoch, `mixed` of them shuffled together:
// reading whole files.
Order by_blocks(std::uint32_t n, std::uint32_t block, std::uint32_t mixed, std::uint64_t epoch) {
  Stream random(derive_key(7, epoch, Purpose::kDraw));
  const Permutation blocks(derive_key(7, epoch, Purpose::kFetchOrder), n / block);
  Order order;
  for (std::uint32_t b = 0; b < n / block; b += mixed) {
    const auto begin = order.size();
    for (std::uint32_t m = b; m < std::min(b + mixed, n / block); ++m) {
      for (std::uint32_t i = 0; i < block; ++i) order.push_back(blocks.at(m) * block + i);
    }
    for (std::size_t i = order.size(); i > begin + 1; --i) {
      std::swap(order[i - 1], order[begin + random.below(i - begin)]);
    }
  }
  return order;
}

template <class Member>
double group_c(const Order& order, Member&& member) {
  const auto at = testing::positions(order);
  std::vector<std::uint32_t> group;
  for (std::uint32_t id = 0; id < at.size(); ++id) {
    if (member(id)) group.push_back(at[id]);
  }
  const auto n = group.size();
  return testing::ks_distance(std::move(group), at.size()) / testing::ks_scale(n, at.size());
}

TEST(S3Position, DoesNotDependOnWhereAnItemLives) {
  std::vector<double> p_values;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const World world(seed, 20'000, 0.05 + 0.09 * static_cast<double>(seed % 10));
    const Order order = world.epoch(seed % 3);
    const auto test = [&](auto&& member) {
      p_values.push_back(testing::ks_p_value(group_c(order, member)));
    };
    test([&](std::uint32_t id) { return world.settled.contains(ItemId(id)); });
    test([&](std::uint32_t id) { return world.size[id] > 1; });
    test([&](std::uint32_t id) {
      return world.size[id] > 1 && !world.settled.contains(ItemId(id));
    });
    test([&](std::uint32_t id) { return world.class_of(id) == 3; });
    test([&](std::uint32_t id) { return id % 4 == 1; });  // homed at one peer of four
    test([&](std::uint32_t id) { return id % 4 == 1 && world.settled.contains(ItemId(id)); });
  }
  EXPECT_GT(testing::holm(p_values), 0.01);
}

TEST(S3Position, RefusesHitsFirst) {
  const World world(3, 100'000);
  const auto resident = [&](std::uint32_t id) { return world.settled.contains(ItemId(id)); };
  const double scale = testing::ks_scale(world.settled.count(), world.n);
  const double distance = group_c(world.hits_first(0), resident) * scale;
  EXPECT_NEAR(distance, 0.77, 0.03);
  EXPECT_GT(distance, 2.35 * scale);
  EXPECT_LT(group_c(world.epoch(0), resident), 2.35);
}

// The share of residents in each batch, first and last included: a table batch × resident.
TEST(S3Position, EachBatchHasItsShareOfResidents) {
  std::vector<double> p_values;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const World world(seed);
    const Order order = world.epoch(0);
    std::vector<std::vector<double>> table(order.size() / world.batch, std::vector<double>(2));
    for (std::size_t i = 0; i < table.size() * world.batch; ++i) {
      ++table[i / world.batch][world.settled.contains(ItemId(order[i])) ? 1 : 0];
    }
    p_values.push_back(testing::independence_p_value(table));
  }
  EXPECT_GT(testing::holm(p_values), 0.01);
}

// And within a batch: nothing may tell a hit by its place.
TEST(S3Position, PlacesWithinABatchAreUniform) {
  const World world(11, 50'000);
  const Order order = world.epoch(0);
  std::vector<std::vector<double>> table(world.batch, std::vector<double>(2));
  for (std::size_t i = 0; i < order.size(); ++i) {
    ++table[i % world.batch][world.settled.contains(ItemId(order[i])) ? 1 : 0];
  }
  EXPECT_GT(testing::independence_p_value(table), 0.01);
}

// Items lost in mid-epoch are spread over what is left of it like all others.
TEST(S3Position, LostItemsAreNoExceptions) {
  std::vector<double> p_values;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const World world(seed, 10'000, 0.5);
    auto sampler = make_substituting_sampler({.seed = seed, .batch_size = 50, .pads = {}},
                                             ItemSet(world.n, true), world.settled);
    ItemSet drawn(world.n), lost(world.n);
    Stream random(derive_key(Key{seed, 9}, 0));
    Order rest;
    while (!sampler->done()) {
      const DrawnBatch batch = testing::next_by_own_order(*sampler);
      for (const ItemId id : batch.items) drawn.insert(id);
      if (batch.step >= 60) {
        for (const ItemId id : batch.items) rest.push_back(id.value);
      }
      if (batch.step != 59) continue;
      sampler->own_order(200);  // some of the order has been looked at already
      world.settled.for_each([&](ItemId id) {
        if (drawn.contains(id) || random.below(3) != 0) return;
        sampler->lost(id);
        lost.insert(id);
      });
    }
    ASSERT_EQ(rest.size(), 7'000u);
    std::vector<std::uint32_t> places, kept;
    for (std::uint32_t i = 0; i < rest.size(); ++i) {
      if (lost.contains(ItemId(rest[i]))) {
        places.push_back(i);
      } else if (world.settled.contains(ItemId(rest[i]))) {
        kept.push_back(i);
      }
    }
    for (const auto& group : {places, kept}) {
      const double scale = testing::ks_scale(group.size(), rest.size());
      p_values.push_back(testing::ks_p_value(testing::ks_distance(group, rest.size()) / scale));
    }
  }
  EXPECT_GT(testing::holm(p_values), 0.01);
}

// What drop_last leaves out is a uniform draw of all items.
TEST(S3Position, DropLastDropsWithoutBias) {
  constexpr std::uint32_t kN = 23;
  const ItemSet settled = testing::set_of(kN, {0, 1, 2, 5, 8, 13, 21});
  std::vector<double> dropped(kN);
  for (std::uint64_t seed = 0; seed < 8'000; ++seed) {
    auto sampler = make_substituting_sampler(
        {.seed = seed, .batch_size = 5, .drop_last = true, .pads = {}}, ItemSet(kN, true), settled);
    ItemSet left(kN, true);
    while (!sampler->done()) {
      for (const ItemId id : testing::next_by_own_order(*sampler).items) left.erase(id);
    }
    ASSERT_EQ(left.count(), 3u);
    left.for_each([&](ItemId id) { ++dropped[id.value]; });
  }
  EXPECT_GT(testing::uniform_p_value(dropped), 0.001);
}

// Rows: batches, columns: classes; the margins are fixed, so independence is the multivariate
// hypergeometric. Also where what is resident is all of some classes.
std::vector<std::vector<double>> class_table(const World& world, const Order& order) {
  std::vector<std::vector<double>> table(order.size() / world.batch,
                                         std::vector<double>(world.classes));
  for (std::size_t i = 0; i < table.size() * world.batch; ++i) {
    ++table[i / world.batch][world.class_of(order[i])];
  }
  return table;
}

TEST(S4Batch, ClassesAreAFairDraw) {
  std::vector<double> p_values;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world(seed);
    if (seed % 2 == 1) {
      world.settled = ItemSet(world.n);
      for (std::uint32_t i = 0; i < world.n / 5; ++i) world.settled.insert(ItemId(i));
    }
    p_values.push_back(testing::independence_p_value(class_table(world, world.epoch(1))));
  }
  EXPECT_GT(testing::holm(p_values), 0.01);
}

TEST(S4Batch, RefusesHitsFirstOverWholeClasses) {
  World world(1);
  world.settled = ItemSet(world.n);
  for (std::uint32_t i = 0; i < world.n / 5; ++i) world.settled.insert(ItemId(i));
  EXPECT_LT(testing::independence_p_value(class_table(world, world.hits_first(0))), 1e-6);
}

double distinct_classes(const Order& order, std::uint32_t batch, std::uint32_t per_class) {
  double sum = 0;
  const std::size_t batches = order.size() / batch;
  for (std::size_t b = 0; b < batches; ++b) {
    std::set<std::uint32_t> classes;
    for (std::size_t i = b * batch; i < (b + 1) * batch; ++i) classes.insert(order[i] / per_class);
    sum += static_cast<double>(classes.size());
  }
  return sum / static_cast<double>(batches);
}

TEST(S4Batch, HasAsManyClassesAsAFairDraw) {
  World world(5, 100'000);
  world.batch = 256;
  EXPECT_NEAR(distinct_classes(world.epoch(0), 256, 100), 226, 226 * 0.02);
  EXPECT_LT(distinct_classes(by_blocks(100'000, 76, 8, 0), 256, 100), 226 * 0.5);
}

// How often items at most `near` apart in the manifest share a batch, against chance.
double sharing(const std::vector<Order>& epochs, std::uint32_t batch, std::uint32_t near) {
  double shared = 0, pairs = 0;
  for (const Order& order : epochs) {
    const auto at = testing::positions(order);
    for (std::uint32_t id = 0; id < at.size(); ++id) {
      for (std::uint32_t j = id + 1; j <= id + near && j < at.size(); ++j) {
        shared += at[id] / batch == at[j] / batch ? 1 : 0;
        ++pairs;
      }
    }
  }
  const auto n = static_cast<double>(epochs.front().size());
  return shared / pairs / ((batch - 1) / (n - 1));
}

template <class Epoch>
std::vector<Order> epochs_of(int count, Epoch&& epoch) {
  std::vector<Order> orders;
  for (int e = 0; e < count; ++e) orders.push_back(epoch(static_cast<std::uint64_t>(e)));
  return orders;
}

TEST(S5Groups, NeighboursDoNotTravelTogether) {
  World world(2);
  const auto ours = epochs_of(10, [&](std::uint64_t e) { return world.epoch(e); });
  EXPECT_NEAR(sharing(ours, world.batch, 8), 1, 0.05);
  EXPECT_NEAR(sharing(ours, world.batch, 100), 1, 0.05);  // one object of a hundred samples
}

TEST(S5Groups, RefusesChunksAndBlocks) {
  const auto chunks = epochs_of(10, [](std::uint64_t e) { return by_blocks(20'000, 2'000, 2, e); });
  EXPECT_NEAR(sharing(chunks, 64, 8), 5, 0.5);  // ten fixed chunks, two read at a time
  const auto tars = epochs_of(10, [](std::uint64_t e) { return by_blocks(19'988, 76, 8, e); });
  EXPECT_GT(sharing(tars, 64, 8), 3.4);
}

double entropy_of_differences(const Order& order) {
  constexpr double kBins = 64;
  const auto n = static_cast<double>(order.size());
  std::vector<double> seen(static_cast<std::size_t>(kBins));
  for (std::size_t i = 1; i < order.size(); ++i) {
    const double step = static_cast<double>(order[i]) - static_cast<double>(order[i - 1]) + n;
    ++seen[static_cast<std::size_t>(step / (2 * n) * kBins)];
  }
  double sum = 0;
  for (const double count : seen) {
    if (count > 0) sum -= count / (n - 1) * std::log(count / (n - 1));
  }
  return sum;
}

double lag_one(const Order& order, std::uint32_t per_class) {
  std::vector<double> a, b;
  for (std::size_t i = 1; i < order.size(); ++i) {
    a.push_back(order[i - 1] / per_class), b.push_back(order[i] / per_class);
  }
  return testing::correlation(a, b);
}

TEST(S6Serial, NoDependenceOnTheItemBefore) {
  std::vector<double> correlations;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const World world(seed);
    const Order order = world.epoch(0);
    Order full(world.n);
    Permutation(derive_key(seed, 99, Purpose::kStrictOrder), world.n).fill(0, 1, full);
    EXPECT_GE(entropy_of_differences(order) / entropy_of_differences(full), 0.98);
    correlations.push_back(lag_one(order, 1));
    correlations.push_back(lag_one(order, world.n / world.classes));
    const Order tars = by_blocks(19'988, 76, 8, seed);
    EXPECT_LT(entropy_of_differences(tars) / entropy_of_differences(full), 0.98);
    EXPECT_GT(lag_one(tars, 1), 0.05);
  }
  EXPECT_GT(testing::uncorrelated(correlations, World(0).n), 0.01);
}

double epochs_correlation(const Order& a, const Order& b) {
  const auto pa = testing::positions(a), pb = testing::positions(b);
  return testing::correlation({pa.begin(), pa.end()}, {pb.begin(), pb.end()});
}

TEST(S7Epochs, AreIndependent) {
  const World world(4);
  const auto orders = epochs_of(8, [&](std::uint64_t e) { return world.epoch(e); });
  std::vector<double> correlations;
  for (std::size_t a = 0; a < orders.size(); ++a) {
    for (std::size_t b = a + 1; b < orders.size(); ++b) {
      correlations.push_back(epochs_correlation(orders[a], orders[b]));
    }
  }
  EXPECT_GT(testing::uncorrelated(correlations, world.n), 0.01);
}

TEST(S7Epochs, RefusesLeftoversFirstAndAFixedOrderOfFetches) {
  const World world(4);
  const Order first = world.epoch(0);
  // What arrived last in the epoch before lies still in the window, and is drawn before the rest.
  Order leftovers(first.rbegin(), first.rbegin() + world.n / 20);
  const ItemSet left = testing::set_of(world.n, leftovers);
  for (const std::uint32_t id : world.arriving(1)) {
    if (!left.contains(ItemId(id))) leftovers.push_back(id);
  }
  EXPECT_LT(epochs_correlation(first, world.epoch_over(1, leftovers)), -0.06);
  EXPECT_GT(epochs_correlation(first, world.epoch_over(1, world.arriving(0))), 0.6);
}

}  // namespace
}  // namespace quiver::cache
