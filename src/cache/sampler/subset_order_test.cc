#include "cache/sampler/subset_order.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "cache/sampler/epoch_sampler.h"

namespace quiver::cache {
namespace {

Permutation order_of(std::uint32_t n) {
  return Permutation(derive_key(7, 3, Purpose::kStrictOrder), n);
}

// What an epoch leaves when its first `place` places were given.
ItemSet rest_from(const Permutation& order, std::uint32_t place) {
  ItemSet rest(order.size(), true);
  for (std::uint32_t i = 0; i < place; ++i) rest.erase(ItemId(order.at(i)));
  return rest;
}

// S11: the first batches of a resumed epoch cost the same wherever it stood.
TEST(SubsetOrder, WhatIsKnownToBeBehindCostsNothing) {
  constexpr std::uint32_t kItems = 100'000, kDrawn = 500;
  const Permutation order = order_of(kItems);
  std::uint64_t most_without = 0;
  for (const std::uint32_t place : {0u, 1u, 9'999u, 50'000u, 50'001u, 99'000u}) {
    const ItemSet rest = rest_from(order, place);
    SubsetOrder known(order, kItems, place), unknown(order, rest);
    for (std::uint32_t i = 0; i < kDrawn; ++i) {
      EXPECT_EQ(known.next(rest), ItemId(order.at(place + i)));
      unknown.next(rest);
    }
    EXPECT_LE(known.computed(), 1024u) << place;
    most_without = std::max(most_without, unknown.computed());
  }
  EXPECT_GE(most_without, kItems / 3);  // else this test measures nothing
}

TEST(SubsetOrder, GoesRoundAndMeetsEveryMemberOnce) {
  EXPECT_TRUE(rc::check([] {
    const auto n = *rc::gen::inRange<std::uint32_t>(1, 3000);
    const auto place = *rc::gen::inRange<std::uint32_t>(0, n + 1);
    const auto members = *rc::gen::container<std::vector<bool>>(n, rc::gen::arbitrary<bool>());
    const bool shuffled = *rc::gen::arbitrary<bool>();
    const Permutation order = order_of(n);
    ItemSet set(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      if (members[i]) set.insert(ItemId(i));
    }
    std::vector<ItemId> expected, got;
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t at = (place + i) % n;
      const ItemId id(shuffled ? order.at(at) : at);
      if (set.contains(id)) expected.push_back(id);
    }
    SubsetOrder walk(shuffled ? std::optional(order) : std::nullopt, n, place);
    while (const auto id = walk.next(set)) got.push_back(*id);
    RC_ASSERT(got == expected);
    RC_ASSERT(walk.computed() == n);
  }));
}

// S11, S12: from a known place a strict run goes on as if it had not been cut.
TEST(StrictSampler, GoesOnFromAKnownPlace) {
  constexpr std::uint32_t kItems = 101, kBatch = 8;
  for (const bool shuffle : {true, false}) {
    EpochOptions options{.seed = 7, .epoch = 3, .batch_size = kBatch, .pads = {}};
    std::vector<std::vector<ItemId>> whole;
    const auto uncut = make_strict_sampler(options, ItemSet(kItems, true), shuffle);
    while (const auto batch = uncut->next()) whole.push_back(batch->items);
    ItemSet rest(kItems, true);
    for (std::uint32_t step = 0; step < whole.size(); ++step) {
      options.first_step = step;
      options.first_place = step * kBatch;
      const auto resumed = make_strict_sampler(options, rest, shuffle);
      EXPECT_EQ(resumed->own_order(kItems).size(), rest.count());
      for (std::uint32_t s = step; s < whole.size(); ++s) {
        const auto batch = resumed->next();
        ASSERT_TRUE(batch);
        EXPECT_EQ(batch->step, s);
        EXPECT_EQ(batch->items, whole[s]);
      }
      EXPECT_TRUE(resumed->done());
      for (const ItemId id : whole[step]) rest.erase(id);
    }
  }
}

}  // namespace
}  // namespace quiver::cache
