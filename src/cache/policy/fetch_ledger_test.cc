#include "cache/policy/fetch_ledger.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <set>

#include "cache/policy/testing/staging_world.h"

namespace quiver::cache {
namespace {

using testing::StagingWorld;

constexpr JobId kA{1}, kB{2};
constexpr Bytes kLength(1000);

Bytes sum(const FetchLedger& ledger) {
  Bytes bytes;
  for (std::size_t i = 0; i < kAgainReasons; ++i) bytes += ledger.read_again(static_cast<Again>(i));
  return bytes;
}

TEST(FetchLedger, OnceAnEpochIsNotTwice) {
  FetchLedger ledger(10);
  for (int epoch = 0; epoch < 3; ++epoch) {
    ledger.begin_epoch();
    ledger.read(ItemId(3), kLength, false);
    ledger.left(ItemId(3), Again::kNewEpoch);
  }
  EXPECT_EQ(sum(ledger), Bytes(0));
}

TEST(FetchLedger, TheFirstThingThatHappenedToTheCopyIsWhy) {
  FetchLedger ledger(10);
  ledger.read(ItemId(3), kLength, false);
  ledger.left(ItemId(3), Again::kLeftStaging);
  ledger.left(ItemId(3), Again::kNoRoom);  // later its segment goes
  ledger.read(ItemId(3), kLength, false);
  EXPECT_EQ(ledger.read_again(Again::kLeftStaging), kLength);
  ledger.left(ItemId(3), Again::kLeftStaging);
  ledger.kept(ItemId(3));  // it lay there still, and was ordered anew
  ledger.left(ItemId(3), Again::kDamaged);
  ledger.read(ItemId(3), kLength, false);
  EXPECT_EQ(ledger.read_again(Again::kDamaged), kLength);
  ledger.read(ItemId(3), kLength, false);  // nothing was seen of the copy
  EXPECT_EQ(ledger.read_again(Again::kNoRoom), kLength);
  ledger.read(ItemId(3), kLength, true);
  EXPECT_EQ(ledger.read_again(Again::kStrict), kLength);
  EXPECT_EQ(sum(ledger), kLength * 4);
}

TEST(FetchLedger, SharedIsWhatAnotherJobBrought) {
  FetchLedger ledger(130);
  for (const std::uint32_t i : {0u, 64u, 129u}) ledger.brought(ItemId(i), kA);
  ledger.brought(ItemId(5), kB);
  const std::vector<std::uint64_t> taken{~std::uint64_t{0}, 1, 2}, none(3);
  EXPECT_EQ(ledger.shared(kB, taken, none), 3u);
  EXPECT_EQ(ledger.shared(kA, taken, none), 1u);
  EXPECT_EQ(ledger.shared(kB, taken, {1, 0, 0}), 2u) << "settled";
  EXPECT_EQ(ledger.shared(kB, none, none), 0u);
}

// Against a model that keeps everything.
TEST(FetchLedger, CountsAsAModelDoes) {
  EXPECT_TRUE(rc::check([] {
    constexpr std::uint32_t kItems = 5;
    FetchLedger ledger(kItems);
    std::set<std::uint32_t> read;
    std::map<std::uint32_t, Again> why;
    std::map<Again, std::uint64_t> expected;
    for (int i = 0; i < 200; ++i) {
      const auto item = *rc::gen::inRange<std::uint32_t>(0, kItems);
      const auto reason = static_cast<Again>(*rc::gen::inRange<unsigned>(0, kAgainReasons));
      switch (*rc::gen::inRange(0, 8)) {
        case 0:
          ledger.begin_epoch();
          read.clear();
          break;
        case 1:
        case 2:
          ledger.kept(ItemId(item));
          why.erase(item);
          break;
        case 3:
        case 4:
          ledger.left(ItemId(item), reason);
          why.try_emplace(item, reason);
          break;
        default: {
          const bool strict = *rc::gen::inRange(0, 4) == 0;
          ledger.read(ItemId(item), kLength, strict);
          const Again left = why.contains(item) ? why[item] : Again::kNoRoom;
          if (!read.insert(item).second) ++expected[strict ? Again::kStrict : left];
          why.erase(item);
        }
      }
    }
    for (std::size_t i = 0; i < kAgainReasons; ++i) {
      const auto reason = static_cast<Again>(i);
      RC_ASSERT(ledger.read_again(reason).value == expected[reason] * kLength.value);
    }
  }));
}

// Jobs in virtual time.

constexpr std::uint32_t kN = 4000, kPinned = 800, kWindow = 160;

std::uint64_t items_again(const StagingWorld& world, Again why) {
  return world.ledger().read_again(why).value / StagingWorld::kItem;
}

TEST(FetchLedger, ALoneJobReadsNothingTwice) {
  StagingWorld world(kN, kPinned, kWindow, 4);
  world.add({.pace = 5, .epochs = 4});
  ASSERT_TRUE(world.run());
  EXPECT_EQ(sum(world.ledger()), Bytes(0));
  // And the beginning of a fifth epoch, which did not come.
  EXPECT_EQ(world.fetched(), kN + 3 * (kN - kPinned) + kWindow / 8);
}

TEST(FetchLedger, EqualJobsInPhaseReadNextToNothingTwice) {
  StagingWorld world(kN, kPinned, kWindow, 4);
  for (std::size_t i = 0; i < 3; ++i) world.add({.seed = i + 1, .pace = 100, .epochs = 4});
  ASSERT_TRUE(world.run());
  EXPECT_LE(sum(world.ledger()).value / StagingWorld::kItem, world.fetched() / 30);
}

// Two jobs of equal speed, bound by their compute, half an epoch apart: θ(1−θ) of what is missing
// is read again, and all of it is accounted for.
TEST(FetchLedger, WhatJobsOutOfPhaseReadAgainIsSaidToBeThat) {
  StagingWorld world(kN, kPinned, kWindow, 12);
  world.add({.seed = 1, .pace = 2, .epochs = 6});
  world.add({.seed = 2, .pace = 2, .start = kN / 4, .epochs = 6});
  ASSERT_TRUE(world.run());
  const std::uint64_t again =
      items_again(world, Again::kNewEpoch) + items_again(world, Again::kLeftStaging);
  EXPECT_EQ(items_again(world, Again::kNoRoom), 0u);
  EXPECT_EQ(again * StagingWorld::kItem, sum(world.ledger()).value);
  EXPECT_GT(again, (kN - kPinned) / 2);
  // Per epoch of the leader no item is read first more than once.
  EXPECT_LE(world.fetched() - again, 8 * (kN - kPinned) + kPinned);
}

}  // namespace
}  // namespace quiver::cache
