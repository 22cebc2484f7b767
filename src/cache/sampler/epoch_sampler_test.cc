#include "cache/sampler/epoch_sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "cache/sampler/ranks.h"
#include "cache/sampler/testing/drive.h"

namespace quiver::cache {
namespace {

using testing::Order;
using testing::set_of;

std::vector<std::uint32_t> values(const std::vector<ItemId>& ids) {
  std::vector<std::uint32_t> out;
  for (const ItemId id : ids) out.push_back(id.value);
  return out;
}

Order sorted(Order order) {
  std::sort(order.begin(), order.end());
  return order;
}

Order range(std::uint32_t n) {
  Order order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Order strict_order(std::uint32_t n, std::uint64_t seed, std::uint64_t epoch) {
  Order order(n);
  Permutation(derive_key(seed, epoch, Purpose::kStrictOrder), n).fill(0, 1, order);
  return order;
}

Order rest_of(EpochSampler& sampler) {
  Order order;
  while (!sampler.done()) {
    for (const ItemId id : testing::next_by_own_order(sampler).items) order.push_back(id.value);
  }
  return order;
}

TEST(SubstitutingTest, AllResidentNeverWaits) {
  auto sampler = make_substituting_sampler({.batch_size = 4, .pads = {}}, ItemSet(10, true),
                                           ItemSet(10, true));
  Order order;
  for (std::uint32_t step = 0; step < 3; ++step) {
    const auto batch = sampler->next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->step, step);
    EXPECT_EQ(batch->missing, 0u);
    EXPECT_EQ(batch->items.size(), step < 2 ? 4u : 2u);
    for (const ItemId id : batch->items) order.push_back(id.value);
  }
  EXPECT_TRUE(sampler->done());
  EXPECT_FALSE(sampler->next());
  EXPECT_EQ(sorted(order), range(10));
}

TEST(SubstitutingTest, WaitsForItsShareOfWhatIsMissing) {
  auto sampler =
      make_substituting_sampler({.batch_size = 4, .pads = {}}, ItemSet(8, true), ItemSet(8));
  EXPECT_EQ(sampler->wanted_now(), 4u);
  for (std::uint32_t id : {7u, 2u, 5u}) {
    EXPECT_FALSE(sampler->next());
    EXPECT_TRUE(sampler->wants(ItemId(id)));
    EXPECT_TRUE(sampler->offer(ItemId(id)));
    EXPECT_FALSE(sampler->wants(ItemId(id)));
    EXPECT_FALSE(sampler->offer(ItemId(id)));
  }
  EXPECT_EQ(sampler->wanted_now(), 1u);
  EXPECT_TRUE(sampler->offer(ItemId(0)));
  EXPECT_TRUE(sampler->offer(ItemId(1)));  // early, for the next batch
  const auto batch = sampler->next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->missing, 4u);
  EXPECT_EQ(sorted(values(batch->items)), (Order{0, 2, 5, 7}));  // in the order of their arrival
  EXPECT_EQ(sampler->wanted_now(), 3u);
  EXPECT_FALSE(sampler->wants(ItemId(7)));   // drawn
  EXPECT_FALSE(sampler->offer(ItemId(99)));  // not of this dataset
}

// To ask again, to look ahead and to lose items must not change what the batch waits for.
TEST(SubstitutingTest, TheDrawStandsWhileTheBatchWaits) {
  int waited = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    auto sampler = make_substituting_sampler({.seed = seed, .batch_size = 8, .pads = {}},
                                             ItemSet(100, true), set_of(100, range(60)));
    const auto wanted = sampler->wanted_now();
    if (wanted == 0) continue;
    ++waited;
    for (std::uint32_t id = 0; id < 30; ++id) {
      EXPECT_FALSE(sampler->next());
      sampler->own_order(3);
      sampler->lost(ItemId(id));
      ASSERT_EQ(sampler->wanted_now(), wanted);
    }
    for (std::uint32_t id = 60; id < 60 + wanted; ++id) sampler->offer(ItemId(id));
    EXPECT_EQ(sampler->next()->missing, wanted);
  }
  EXPECT_GT(waited, 40);
}

TEST(SubstitutingTest, OffersAreDrawnFirstInFirstOut) {
  auto sampler =
      make_substituting_sampler({.batch_size = 3, .pads = {}}, ItemSet(60, true), ItemSet(60));
  Order offered = strict_order(60, 1, 1);
  for (const std::uint32_t id : offered) ASSERT_TRUE(sampler->offer(ItemId(id)));
  for (std::size_t step = 0; step < 20; ++step) {
    const auto at = offered.begin() + static_cast<std::ptrdiff_t>(3 * step);
    EXPECT_EQ(sorted(values(sampler->next()->items)), sorted(Order(at, at + 3)));
  }
}

TEST(SubstitutingTest, LostItemsComeBackOverTheLink) {
  auto sampler = make_substituting_sampler({.batch_size = 5, .pads = {}}, ItemSet(20, true),
                                           ItemSet(20, true));
  ItemSet left(20, true);
  for (const ItemId id : testing::next_by_own_order(*sampler).items)
    left.erase(id), sampler->lost(id);
  EXPECT_EQ(sampler->wanted_now(), 0u);  // what was drawn already is nobody's loss
  left.for_each([&](ItemId id) { sampler->lost(id), sampler->lost(id); });
  EXPECT_EQ(sampler->wanted_now(), 5u);  // nothing is left to serve the draw from
  EXPECT_EQ(sampler->own_order(99).size(), 15u);
  left.for_each([&](ItemId id) { EXPECT_TRUE(sampler->offer(id)); });
  const ItemId again(static_cast<std::uint32_t>(__builtin_ctzll(left.words()[0])));
  sampler->lost(again);  // offered, then gone before it was drawn
  EXPECT_TRUE(sampler->wants(again));
  EXPECT_EQ(sampler->own_order(99), std::vector<ItemId>{again});
  for (const std::uint32_t id : rest_of(*sampler)) EXPECT_TRUE(left.erase(ItemId(id)));
  EXPECT_EQ(left.count(), 0u);
}

TEST(SubstitutingTest, PadsAreDeliveredBesides) {
  const std::vector<ItemId> pads{ItemId(3), ItemId(3), ItemId(9)};
  std::map<std::uint32_t, int> steps_of_pads;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    auto sampler = make_substituting_sampler({.seed = seed, .batch_size = 4, .pads = pads},
                                             set_of(10, {0, 1, 2, 4, 5, 6, 7, 8}), ItemSet(10));
    Order order;
    while (!sampler->done()) {
      const DrawnBatch batch = testing::next_by_own_order(*sampler);
      for (const ItemId id : batch.items) {
        order.push_back(id.value);
        if (id == ItemId(9)) ++steps_of_pads[batch.step];
      }
    }
    ASSERT_EQ(sorted(order), (Order{0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9}));
  }
  EXPECT_NEAR(steps_of_pads[0], 400 * 4 / 11.0, 40);  // uniform over 4 + 4 + 3 positions
  EXPECT_NEAR(steps_of_pads[2], 400 * 3 / 11.0, 40);
}

TEST(SubstitutingTest, OwnOrderIsKeyedAndStable) {
  const auto sampler_of = [](std::uint64_t epoch) {
    return make_substituting_sampler({.seed = 5, .epoch = epoch, .batch_size = 4, .pads = {}},
                                     ItemSet(1000, true), set_of(1000, range(500)));
  };
  auto sampler = sampler_of(0);
  const auto first = sampler->own_order(100);
  EXPECT_EQ(sampler->own_order(100), first);
  const auto all = sampler->own_order(2000);
  EXPECT_EQ(all.size(), 500u);
  EXPECT_EQ(std::vector<ItemId>(all.begin(), all.begin() + 100), first);
  EXPECT_NE(sampler_of(1)->own_order(100), first);
  EXPECT_EQ(sampler_of(0)->own_order(100), first);
  sampler->offer(first[0]);
  EXPECT_EQ(sampler->own_order(99), std::vector<ItemId>(first.begin() + 1, first.end()));
}

// Anything may happen in any order: each item comes once, and the sampler never gets stuck.
TEST(SubstitutingTest, EveryItemOnceWhateverArrivesOrIsLost) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    const auto n = *rc::gen::inRange<std::uint32_t>(0, 200);
    const auto batch_size = *rc::gen::inRange<std::uint32_t>(1, 20);
    const bool drop_last = *rc::gen::arbitrary<bool>();
    Stream random(derive_key(Key{seed, 1}, n));
    ItemSet remaining(n), settled(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      if (random.below(4) != 0) remaining.insert(ItemId(i));
      if (random.below(2) != 0) settled.insert(ItemId(i));
    }
    const auto total = remaining.count();
    auto sampler = make_substituting_sampler({.seed = seed,
                                              .batch_size = batch_size,
                                              .drop_last = drop_last,
                                              .first_step = 7,
                                              .pads = {}},
                                             remaining, settled);
    std::uint32_t step = 7;
    ItemSet left = remaining;
    while (!sampler->done()) {
      for (std::uint64_t i = random.below(4); i > 0; --i) {
        sampler->lost(ItemId(static_cast<std::uint32_t>(random.below(n))));
        const ItemId other(static_cast<std::uint32_t>(random.below(n)));
        RC_ASSERT(!sampler->wants(other) || left.contains(other));
        sampler->offer(other);
      }
      const auto order = sampler->own_order(static_cast<std::uint32_t>(random.below(n + 1)));
      ItemSet distinct(n);
      for (const ItemId id : order) RC_ASSERT(sampler->wants(id) && distinct.insert(id));
      const DrawnBatch batch = testing::next_by_own_order(*sampler);
      RC_ASSERT(batch.step == step++);
      for (const ItemId id : batch.items) RC_ASSERT(left.erase(id));
    }
    RC_ASSERT(step - 7 == (drop_last ? total / batch_size : (total + batch_size - 1) / batch_size));
    RC_ASSERT(left.count() == (drop_last ? total % batch_size : 0));
  }));
}

TEST(StrictTest, IsThePermutationWhateverIsResident) {
  auto sampler = make_strict_sampler({.seed = 3, .epoch = 2, .batch_size = 7, .pads = {}},
                                     ItemSet(100, true), true);
  EXPECT_EQ(sampler->wanted_now(), 0u);
  EXPECT_FALSE(sampler->offer(ItemId(1)));
  const Order order = strict_order(100, 3, 2);
  EXPECT_EQ(values(sampler->own_order(20)), Order(order.begin(), order.begin() + 20));
  sampler->next();
  EXPECT_EQ(values(sampler->own_order(3)), Order(order.begin() + 7, order.begin() + 10));
  EXPECT_EQ(rest_of(*sampler), Order(order.begin() + 7, order.end()));
}

TEST(StrictTest, UnshuffledIsAscendingAndDropsTheLastBatchWhenAsked) {
  auto sampler = make_strict_sampler({.batch_size = 4, .drop_last = true, .pads = {}},
                                     ItemSet(10, true), false);
  EXPECT_EQ(rest_of(*sampler), range(8));
}

TEST(StrictTest, PadsComeLast) {
  auto sampler =
      make_strict_sampler({.batch_size = 4, .pads = {ItemId(7)}}, set_of(10, {2, 4, 6, 8}), false);
  EXPECT_EQ(rest_of(*sampler), (Order{2, 4, 6, 8, 7}));
}

// One order over all ranks, whatever their number: step s of all ranks is places s·W·B … of it.
TEST(StrictTest, RanksTogetherWalkOneOrder) {
  const Order order = strict_order(60, 8, 1);
  for (const std::uint32_t world : {1u, 2u, 3u, 4u, 5u, 6u}) {
    const std::uint32_t batch = 2;
    std::vector<std::unique_ptr<EpochSampler>> ranks;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const Shape shape{.items = 60, .world = world, .rank = rank, .batch_size = batch};
      const auto part = part_of_rank(ItemSet(60, true), ItemSet(60, true), shape, 8, 1);
      ranks.push_back(make_strict_sampler(
          {.seed = 8, .epoch = 1, .rank = rank, .batch_size = batch, .pads = part.pads}, part.items,
          true));
    }
    for (std::uint32_t step = 0; step < 60 / batch / world; ++step) {
      Order together;
      for (auto& rank : ranks) {
        for (const ItemId id : testing::next_by_own_order(*rank).items)
          together.push_back(id.value);
      }
      const auto at = order.begin() + step * world * batch;
      EXPECT_EQ(sorted(together), sorted(Order(at, at + world * batch)));
    }
  }
}

TEST(ListedTest, RepeatsTheList) {
  auto sampler = make_listed_sampler({{ItemId(4), ItemId(1)}, {ItemId(4)}}, 3);
  EXPECT_EQ(values(sampler->own_order(10)), (Order{4, 1, 4}));
  EXPECT_EQ(values(sampler->own_order(1)), (Order{4}));
  const auto batch = sampler->next();
  EXPECT_EQ(batch->step, 3u);
  EXPECT_EQ(values(batch->items), (Order{4, 1}));
  EXPECT_EQ(values(sampler->own_order(10)), (Order{4}));
  EXPECT_EQ(sampler->next()->step, 4u);
  EXPECT_TRUE(sampler->done());
  EXPECT_FALSE(sampler->next());
}

}  // namespace
}  // namespace quiver::cache
