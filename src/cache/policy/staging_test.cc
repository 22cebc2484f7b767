#include "cache/policy/staging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cache/sampler/item_set.h"

namespace quiver::cache {
namespace {

constexpr std::uint32_t kN = 200;
constexpr JobId kA{1}, kB{2};

// A plan over items of one byte, with a window of ten, and boards that tests write by name.
class Staging : public ::testing::Test {
 protected:
  struct Board {
    RankBoard board;
    ItemSet settled{kN}, taken{kN};
  };
  Staging() { plan.set_window(Bytes(10)); }

  Board& board(JobId job, std::uint32_t rank = 0) { return boards[{job, rank}]; }
  void tell(JobId job, std::uint32_t rank = 0) {
    Board& b = board(job, rank);
    RankBoard its = b.board;
    its.settled = b.settled.words();
    its.taken = b.taken.words();
    EXPECT_TRUE(plan.update(job, rank, std::move(its)));
  }
  void begin(JobId job, std::uint64_t epoch, double pace = 1, std::uint32_t rank = 0) {
    Board& b = board(job, rank);
    b.board.epoch = epoch;
    b.board.order_seed = job.value * 100;
    b.board.items_per_second = pace;
    b.taken = ItemSet(kN);
    tell(job, rank);
  }
  void take(JobId job, ItemId id) {
    board(job).taken.insert(id);
    tell(job);
  }
  std::vector<Order> orders() {
    std::vector<Order> all;
    while (const auto order = plan.next()) all.push_back(*order);
    return all;
  }
  // Orders what it may, and all of it arrives.
  std::vector<Order> orders_arrive() {
    const auto all = orders();
    for (const Order& order : all) plan.arrived(order.item, false);
    return all;
  }
  // All is ordered and comes; the job takes it, but for the last ones of its order.
  void take_all_but(JobId job, std::uint64_t epoch, std::uint32_t untaken) {
    left.clear();
    const Permutation order = fetch_order(job, epoch);
    for (std::uint32_t i = 0; i < kN; ++i) {
      const ItemId id(order.at(i));
      if (i >= kN - untaken) {
        left.insert(id);
      } else {
        board(job).taken.insert(id);
      }
    }
    tell(job);
  }
  void end_second_epoch(std::uint32_t untaken);
  std::vector<ItemId> release() {
    const auto items = plan.release();
    for (const ItemId id : items) plan.evicted(id);
    return items;
  }
  static Permutation fetch_order(JobId job, std::uint64_t epoch) {
    return Permutation(derive_key(job.value * 100, epoch, Purpose::kFetchOrder), kN);
  }

  StagingPlan plan{kN, [](ItemId) { return Bytes(1); }};
  std::map<std::pair<JobId, std::uint32_t>, Board> boards;
  std::set<ItemId> left;
};

TEST_F(Staging, OrdersTheLeadersMissingItemsInItsKeyedOrderWithinTheWindow) {
  board(kA).settled.insert(ItemId(fetch_order(kA, 0).at(1)));
  plan.arrived(ItemId(fetch_order(kA, 0).at(1)), true);
  board(kA).taken.insert(ItemId(0));
  begin(kA, 0);
  const auto got = orders();
  ASSERT_EQ(got.size(), 10u);
  std::uint32_t position = 0;
  for (std::size_t i = 0; i < got.size(); ++i, ++position) {
    if (position == 1) ++position;
    EXPECT_EQ(got[i].item.value, fetch_order(kA, 0).at(position));
    EXPECT_EQ(got[i].place, i);
    EXPECT_TRUE(got[i].fetch);
  }
}

TEST_F(Staging, AStrictJobIsServedInItsStrictOrder) {
  board(kA).board.strict = true;
  begin(kA, 3);
  const Permutation strict(derive_key(100, 3, Purpose::kStrictOrder), kN);
  EXPECT_EQ(orders().front().item.value, strict.at(0));

  board(kB).board.strict = true;
  board(kB).board.shuffled = false;
  plan.remove(kA, 0);
  begin(kB, 0);
  EXPECT_FALSE(plan.at_rest());
  take(kB, ItemId(0));
  release();
  EXPECT_EQ(orders().front().item.value, 1u);
}

TEST_F(Staging, WhatTheOnlyJobTookLeavesAndMakesRoom) {
  begin(kA, 0);
  const auto got = orders_arrive();
  EXPECT_TRUE(orders().empty());
  take(kA, got[0].item);
  take(kA, got[3].item);
  EXPECT_EQ(release(), (std::vector{got[0].item, got[3].item}));
  EXPECT_EQ(plan.tail(), 1u);
  EXPECT_EQ(orders().size(), 2u);
}

TEST_F(Staging, SeveralJobsHoldHalfAWindowBehindAndHalfAhead) {
  begin(kA, 0, 10);
  begin(kB, 0, 1);
  ASSERT_EQ(plan.leader(), kA);
  std::vector<ItemId> line;
  std::uint64_t most = 0;
  for (int round = 0; round < 40; ++round) {
    for (const Order& order : orders_arrive()) line.push_back(order.item);
    EXPECT_EQ(plan.ahead(), Bytes(5));
    most = std::max(most, plan.held().value);
    EXPECT_LE(plan.held(), Bytes(11));
    take(kA, line[static_cast<std::size_t>(round)]);
    release();
  }
  EXPECT_GE(most, 10u);                // the rider holds what is behind
  EXPECT_FALSE(plan.holds(line[20]));  // but not for ever, though it never took it
  EXPECT_TRUE(plan.holds(line[39]));
}

TEST_F(Staging, WhatFallsOutsideGoesWhetherOrNotTheLeaderHasHadIt) {
  begin(kA, 0, 10);
  begin(kB, 0, 1);
  std::vector<ItemId> line;
  for (int round = 0; round < 40; ++round) {
    for (const Order& order : orders_arrive()) line.push_back(order.item);
    if (round != 3) take(kA, line[static_cast<std::size_t>(round)]);  // line[3] is never taken
    release();
  }
  EXPECT_FALSE(plan.holds(line[3]));
  EXPECT_EQ(plan.tail(), 34u);
}

TEST_F(Staging, ForTheOnlyJobWhatWasOvertakenStays) {
  begin(kA, 0);
  std::vector<ItemId> line;
  for (std::size_t round = 0; round < 40; ++round) {
    for (const Order& order : orders_arrive()) line.push_back(order.item);
    if (round != 3) take(kA, line[round]);
    release();
    EXPECT_LE(plan.held(), Bytes(11));
  }
  EXPECT_TRUE(plan.holds(line[3]));
}

TEST_F(Staging, WhatWasOvertakenOnItsWayStaysHalfAWindowAfterItCame) {
  begin(kA, 0, 10);
  begin(kB, 0, 1);
  std::vector<ItemId> line;
  const auto turn = [&](std::size_t round) {
    for (const Order& order : orders()) {
      line.push_back(order.item);
      if (line.size() != 4) plan.arrived(order.item, false);  // line[3] is large and slow
    }
    if (round != 3) take(kA, line[round]);
    release();
  };
  std::size_t round = 0;
  for (; round < 40; ++round) turn(round);
  EXPECT_TRUE(plan.holds(line[3]));
  EXPECT_EQ(std::count(line.begin(), line.end(), line[3]), 1);

  plan.arrived(line[3], false);
  for (; round < 44; ++round) turn(round);
  EXPECT_TRUE(plan.holds(line[3]));
  for (; round < 50; ++round) turn(round);
  EXPECT_FALSE(plan.holds(line[3]));  // nobody may jam the window
}

TEST_F(Staging, WhatNobodyWantsLeavesAtOnce) {
  begin(kA, 0, 10);
  begin(kB, 0, 1);
  const auto got = orders_arrive();
  take(kA, got[0].item);
  EXPECT_TRUE(release().empty());
  take(kB, got[0].item);
  EXPECT_EQ(release(), std::vector{got[0].item});
}

TEST_F(Staging, TheLeadChangesOnlyForTenPerCentMore) {
  begin(kA, 0, 100);
  begin(kB, 0, 109);
  EXPECT_EQ(plan.leader(), kA);
  board(kB).board.items_per_second = 111;
  tell(kB);
  EXPECT_EQ(plan.leader(), kB);
  board(kA).board.items_per_second = 120;
  tell(kA);
  EXPECT_EQ(plan.leader(), kB);
  plan.remove(kB, 0);
  EXPECT_EQ(plan.leader(), kA);
  plan.remove(kA, 0);
  EXPECT_EQ(plan.leader(), std::nullopt);
}

TEST_F(Staging, WithoutAPaceTheLowestJobLeads) {
  begin(kB, 0, 0);
  begin(kA, 0, 0);
  EXPECT_EQ(plan.leader(), kB);  // it was there first
  plan.remove(kB, 0);
  begin(kB, 0, 0);
  EXPECT_EQ(plan.leader(), kA);
  board(kB).board.strict = true;
  tell(kB);
  EXPECT_EQ(plan.leader(), kB);
}

TEST_F(Staging, TheNextEpochIsOrderedOnlyOnceItIsAnnounced) {
  plan.set_window(Bytes(1000));
  begin(kA, 0);
  EXPECT_EQ(orders_arrive().size(), kN);
  for (std::uint32_t i = 0; i < kN; ++i) board(kA).taken.insert(ItemId(i));
  tell(kA);
  release();
  EXPECT_TRUE(orders().empty());
  EXPECT_TRUE(plan.at_rest());
  begin(kA, 1);
  EXPECT_FALSE(plan.at_rest());
  const auto got = orders();
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(got.front().item.value, fetch_order(kA, 1).at(0));
}

// A job that was seen to go on, with all items but those already taken still to be taken.
void Staging::end_second_epoch(std::uint32_t untaken) {
  plan.set_window(Bytes(40));
  board(kA).board.part = kN;
  begin(kA, 0);
  begin(kA, 1);
  take_all_but(kA, 1, untaken);
  release();
}

TEST_F(Staging, TheBeginningOfTheNextEpochIsOrderedBeforeIt) {
  end_second_epoch(0);
  const auto early = orders_arrive();
  ASSERT_EQ(early.size(), 40u / 8);
  for (std::uint32_t i = 0; i < early.size(); ++i) {
    EXPECT_EQ(early[i].item.value, fetch_order(kA, 2).at(i));
    EXPECT_TRUE(early[i].early && early[i].fetch);
  }
  EXPECT_TRUE(release().empty());
  EXPECT_TRUE(orders().empty());
  begin(kA, 2);
  EXPECT_TRUE(release().empty());
  const auto got = orders();
  ASSERT_EQ(got.size(), 40 - early.size());
  EXPECT_EQ(got.front().item.value, fetch_order(kA, 2).at(5));
  EXPECT_FALSE(got.front().early);
}

// One stay serves a job once.
// One stay serves a job once.
TEST_F(Staging, WhatTheEpochStillWantsIsNotYetOrderedForTheNext) {
  end_second_epoch(30);
  const Permutation next = fetch_order(kA, 2);
  std::uint32_t clear = 0;  // of the next order's beginning, before the first that is still wanted
  while (clear < 5 && !left.contains(ItemId(next.at(clear)))) ++clear;
  ASSERT_LT(clear, 5u);
  const auto got = orders_arrive();
  EXPECT_EQ(std::ranges::count_if(got, &Order::early), clear);
  EXPECT_EQ(got.size(), 30 + clear);
  take_all_but(kA, 1, 0);
  release();
  const auto rest = orders();
  ASSERT_EQ(rest.size(), 5 - clear);
  EXPECT_TRUE(left.empty() && rest.front().early);
  EXPECT_EQ(rest.front().item.value, next.at(clear));
}

TEST_F(Staging, NothingIsOrderedEarlyForWhoseNextEpochIsNotKnown) {
  end_second_epoch(0);
  board(kA).board.part = kN - 1;  // another rank, elsewhere, has the rest
  tell(kA);
  EXPECT_TRUE(orders().empty());
  EXPECT_TRUE(plan.at_rest());
}

TEST_F(Staging, WhatWasOrderedForAnEpochThatDoesNotComeLeaves) {
  end_second_epoch(0);
  const auto early = orders_arrive();
  ASSERT_FALSE(early.empty());
  begin(kA, 0);  // back to the first one
  EXPECT_EQ(release().size(), early.size());
  EXPECT_FALSE(orders().empty());
  end_second_epoch(0);
  ASSERT_FALSE(orders_arrive().empty());
  plan.remove(kA, 0);
  EXPECT_FALSE(release().empty());
}

TEST_F(Staging, AStrictJobThatIsAboutAsFastLeads) {
  begin(kA, 0, 100);
  board(kB).board.strict = true;
  begin(kB, 0, 95);
  EXPECT_EQ(plan.leader(), kB);
  board(kB).board.items_per_second = 80;
  tell(kB);
  EXPECT_EQ(plan.leader(), kB);
  board(kB).board.items_per_second = 70;
  tell(kB);
  EXPECT_EQ(plan.leader(), kA);
}

TEST_F(Staging, WhoStandsStillLeadsNobodyWhoMoves) {
  begin(kA, 0, 100);
  begin(kB, 0, 10);
  EXPECT_EQ(plan.leader(), kA);
  board(kA).board.moving = false;
  tell(kA);
  EXPECT_EQ(plan.leader(), kB);
  board(kB).board.moving = false;
  tell(kB);
  EXPECT_EQ(plan.leader(), kA);
}

TEST_F(Staging, JobsThatTheLinkHoldsBackAreEqual) {
  plan.set_link_pace(50);
  begin(kA, 0, 100);
  begin(kB, 0, 1000);
  EXPECT_EQ(plan.leader(), kA);  // it leads already
  board(kB).board.strict = true;
  tell(kB);
  EXPECT_EQ(plan.leader(), kB);
}

TEST_F(Staging, WhatIsStillStagedKeepsItsPlaceInTheNewOrderWithoutAFetch) {
  begin(kA, 0, 10);
  begin(kB, 0, 1);
  const auto got = orders_arrive();
  for (std::uint32_t i = 0; i < kN; ++i) board(kA).taken.insert(ItemId(i));
  tell(kA);
  EXPECT_TRUE(release().empty());  // the rider wants them
  begin(kA, 1, 10);
  plan.set_window(Bytes(1000));
  std::map<ItemId, Order> again;
  std::uint32_t position = 0;
  for (const Order& order : orders()) {
    EXPECT_EQ(order.item.value, fetch_order(kA, 1).at(position++));  // not protected, not first
    again[order.item] = order;
  }
  EXPECT_EQ(again.size(), kN);
  for (const Order& order : got) EXPECT_FALSE(again[order.item].fetch);
}

TEST_F(Staging, OneStayServesAJobOnce) {
  begin(kA, 0, 10);
  begin(kB, 0, 1);
  const auto got = orders_arrive();
  take(kB, got[0].item);
  begin(kB, 1, 1);  // it wants it again, but not from this stay
  take(kA, got[0].item);
  EXPECT_EQ(release(), std::vector{got[0].item});
}

TEST_F(Staging, AFailedOrderIsPassedAndALostItemIsWantedAgain) {
  begin(kA, 0);
  const auto got = orders();
  plan.failed(got[0].item);
  EXPECT_EQ(plan.ahead(), Bytes(9));
  EXPECT_EQ(orders().size(), 1u);
  EXPECT_FALSE(plan.holds(got[0].item));

  const ItemId later(fetch_order(kA, 0).at(50));
  plan.arrived(later, true);
  board(kA).settled.insert(later);
  tell(kA);
  plan.evicted(later);
  plan.set_window(Bytes(1000));
  bool ordered = false;
  for (const Order& order : orders()) ordered = ordered || order.item == later;
  EXPECT_TRUE(ordered);
}

TEST_F(Staging, ARankThatJoinsLateFindsItsPartOrdered) {
  plan.set_window(Bytes(1000));
  for (std::uint32_t i = 0; i < kN; i += 2) board(kA, 0).taken.insert(ItemId(i));
  const ItemSet part = board(kA, 0).taken;
  begin(kA, 0, 1, 0);
  board(kA, 0).taken = part;
  tell(kA, 0);
  orders_arrive();
  begin(kA, 0, 1, 1);
  std::set<ItemId> all;
  for (const Order& order : orders_arrive()) all.insert(order.item);
  for (std::uint32_t i = 0; i < kN; ++i) EXPECT_TRUE(plan.holds(ItemId(i)));
}

TEST_F(Staging, AGuestStaysUntilThoseWhoWantedItHaveTakenIt) {
  plan.set_window(Bytes(100));
  const ItemId last(fetch_order(kA, 0).at(kN - 1));
  begin(kA, 0);
  orders();
  plan.arrived(last, false);
  plan.guest(last);
  EXPECT_TRUE(release().empty());
  take(kA, last);
  EXPECT_EQ(release(), std::vector{last});
}

TEST_F(Staging, AJobWhoseOrderIsNotKnownNeverLeadsAndItsGuestsHaveTheWindow) {
  plan.set_window(Bytes(80));
  board(kA).board.listed = true;
  begin(kA, 0);
  EXPECT_EQ(plan.leader(), std::nullopt);
  EXPECT_TRUE(orders().empty());
  for (std::uint32_t i = 0; i < 100; ++i) {
    plan.arrived(ItemId(i), false);
    plan.guest(ItemId(i));
  }
  EXPECT_EQ(release().size(), 20u);
  take(kA, ItemId(50));
  EXPECT_EQ(release(), std::vector{ItemId(50)});
  begin(kB, 0);
  EXPECT_EQ(plan.leader(), kB);
}

TEST_F(Staging, GuestsNeverTakeMoreThanAnEighthOfTheWindowBesideALeader) {
  plan.set_window(Bytes(80));
  board(kA).taken = ItemSet(kN, true);
  board(kA).board.items_per_second = 1;
  tell(kA);
  for (std::uint32_t i = 0; i < 30; ++i) {
    plan.arrived(ItemId(i), false);
    plan.guest(ItemId(i));
  }
  EXPECT_EQ(release().size(), 20u);
  EXPECT_TRUE(plan.holds(ItemId(29)));
}

// A rider asks for a batch at a time: what it waits for does not go before it has come to it.
TEST_F(Staging, GuestsThatARiderWaitsForHaveHalfOfTheWindow) {
  plan.set_window(Bytes(80));
  board(kA).taken = ItemSet(kN, true);
  board(kA).board.items_per_second = 2;
  tell(kA);
  begin(kB, 0);
  for (std::uint32_t i = 0; i < 60; ++i) {
    plan.arrived(ItemId(i), false);
    plan.guest(ItemId(i));
  }
  EXPECT_EQ(release().size(), 20u);
  for (std::uint32_t i = 20; i < 60; ++i) EXPECT_TRUE(plan.holds(ItemId(i)));
}

TEST_F(Staging, GuestsLeaveWhenThereIsNoRoom) {
  plan.set_window(Bytes(80));
  plan.arrived(ItemId(7), false);
  plan.guest(ItemId(7));
  EXPECT_EQ(plan.dismiss_guests(), std::vector{ItemId(7)});
  EXPECT_FALSE(plan.holds(ItemId(7)));
  EXPECT_EQ(plan.held(), Bytes(0));
}

TEST_F(Staging, BoardsOfAnotherSizeAreRefused) {
  EXPECT_FALSE(plan.update(kA, 0, RankBoard{}));
  EXPECT_EQ(plan.leader(), std::nullopt);
}

}  // namespace
}  // namespace quiver::cache
