#include "cache/client/feed.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/wait.h>

#include <algorithm>
#include <numeric>

#include "cache/client/testing/feed_loop.h"

namespace quiver::cache {
namespace {

using std::chrono::milliseconds;

TEST(Feed, EveryItemOnceInEachEpochWithoutADaemon) {
  auto dataset = std::make_shared<MemoryDataset>(103);
  auto feed = make_feed(dataset, options_of(10));
  EXPECT_EQ(feed->batches(), 11u);
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> times(103);
    const auto batches = run_epoch(*feed);
    count(batches, times);
    EXPECT_EQ(batches.size(), 11u);
    EXPECT_EQ(times, std::vector<int>(103, 1));
    EXPECT_EQ(feed->report().samples, 103u);
    EXPECT_EQ(feed->report().tiers[static_cast<int>(Tier::kDirect)], 103u);
    EXPECT_TRUE(feed->report().degraded);
  }
}

TEST(Feed, UnshuffledIsAscending) {
  auto feed = make_feed(std::make_shared<MemoryDataset>(7), options_of(3, false));
  const auto batches = run_epoch(*feed);
  EXPECT_EQ(batches, (std::vector<Ids>{{ItemId(0), ItemId(1), ItemId(2)},
                                       {ItemId(3), ItemId(4), ItemId(5)},
                                       {ItemId(6)}}));
}

// S1, S2, S9, S10, S11 through the whole machine: broken off at any step, resumed with another
// world.
TEST(Feed, ExactlyOnceForAnyWorldBrokenOffAnywhere) {
  EXPECT_TRUE(rc::check([] {
    const auto n = *rc::gen::inRange<std::uint32_t>(1, 60);
    const auto world = *rc::gen::inRange<std::uint32_t>(1, 4);
    const auto later_world = *rc::gen::inRange<std::uint32_t>(1, 4);
    FeedOptions options = options_of(*rc::gen::inRange<std::uint32_t>(1, 9));
    options.mode = *rc::gen::element(Mode::kStrict, Mode::kSubstitute);
    options.shuffle = *rc::gen::arbitrary<bool>();
    options.uneven = *rc::gen::element(Uneven::kPad, Uneven::kKeep);
    const bool daemon = *rc::gen::arbitrary<bool>();
    const auto cut = *rc::gen::inRange<std::uint32_t>(0, 6);
    const auto dataset = std::make_shared<MemoryDataset>(n, daemon);
    if (daemon) {
      dataset->answer_wants(true);
      for (std::uint32_t i = 0; i < n; ++i) dataset->stage(ItemId(i));
    }
    std::vector<int> times(n);
    std::vector<RankState> parts;
    options.world = world;
    for (std::uint32_t r = 0; r < world; ++r) {
      options.rank = r;
      auto feed = make_feed(dataset, options);
      RC_ASSERT(feed->begin_epoch().has_value());
      Loop loop(*feed);
      for (std::uint32_t i = 0; i < cut; ++i) {
        if (const auto batch = loop.next()) count({*batch}, times);
      }
      parts.push_back(feed->state());
    }
    const auto state = merge(parts);
    // Ranks of unequal length may stand at different steps, which is no state of the job.
    RC_ASSERT(state.has_value() || options.uneven == Uneven::kKeep);
    if (!state) return;
    if (state->epoch == 0) {
      options.world = later_world;
      for (std::uint32_t r = 0; r < later_world; ++r) {
        options.rank = r;
        auto feed = make_feed(dataset, options);
        RC_ASSERT(feed->load_state(*state).has_value());
        RC_ASSERT(feed->state().delivered_before == state->delivered);
        RC_ASSERT(feed->begin_epoch().has_value());
        if (feed->epoch() > 0) continue;  // nothing was left
        count(Loop(*feed).rest(), times);
      }
    }
    const int most = options.uneven == Uneven::kPad ? 3 : 1;
    for (const int t : times) RC_ASSERT(t >= 1 && t <= most);
    if (world == 1 && later_world == 1) RC_ASSERT(times == std::vector<int>(n, 1));
  }));
}

TEST(Feed, DropLastLeavesTheRestOut) {
  FeedOptions options = options_of(10);
  options.drop_last = true;
  auto feed = make_feed(std::make_shared<MemoryDataset>(25), options);
  EXPECT_EQ(feed->batches(), 2u);
  EXPECT_EQ(run_epoch(*feed).size(), 2u);
  EXPECT_EQ(feed->state().epoch, 1u);
}

TEST(Feed, ASubsetIsAllThatIsDrawn) {
  FeedOptions options = options_of(4);
  options.subset = {ItemId(3), ItemId(9), ItemId(11)};
  auto feed = make_feed(std::make_shared<MemoryDataset>(20), options);
  std::vector<int> times(20);
  count(run_epoch(*feed), times);
  EXPECT_EQ(std::accumulate(times.begin(), times.end(), 0), 3);
  EXPECT_EQ(times[3] + times[9] + times[11], 3);
}

TEST(Feed, StrictOrderDoesNotDependOnTheCache) {
  FeedOptions options = options_of(8);
  options.mode = Mode::kStrict;
  options.seed = 5;
  auto warm = std::make_shared<MemoryDataset>(50, true);
  for (std::uint32_t i = 0; i < 50; i += 2) warm->pin(ItemId(i));
  auto one = make_feed(std::make_shared<MemoryDataset>(50), options);
  auto two = make_feed(warm, options);
  EXPECT_EQ(run_epoch(*one), run_epoch(*two));
  EXPECT_EQ(one->state().chain, two->state().chain);
}

TEST(Feed, ProportionalDrawTakesStagedItemsInTheOrderOfTheRing) {
  auto dataset = std::make_shared<MemoryDataset>(100, true);
  for (std::uint32_t i = 0; i < 50; ++i) dataset->pin(ItemId(i));
  for (std::uint32_t i = 50; i < 100; ++i) dataset->stage(ItemId(149 - i));
  auto feed = make_feed(dataset, options_of(10));
  const auto batches = run_epoch(*feed);
  std::uint32_t last = 100;
  std::vector<int> times(100);
  count(batches, times);
  EXPECT_EQ(times, std::vector<int>(100, 1));
  for (Ids batch : batches) {
    std::erase_if(batch, [](ItemId id) { return id.value < 50; });
    if (batch.empty()) continue;
    std::ranges::sort(batch);
    EXPECT_LT(batch.back().value, last);  // older orders first, from batch to batch
    last = batch.front().value;
  }
  const EpochReport report = feed->report();
  EXPECT_EQ(report.settled, 50u);
  EXPECT_EQ(report.tiers[static_cast<int>(Tier::kPinned)], 50u);
  EXPECT_EQ(report.tiers[static_cast<int>(Tier::kStaged)], 50u);
  EXPECT_TRUE(dataset->wanted().empty());  // the ring had all of it
}

TEST(Feed, AsksForItsOwnOrderWhenNothingOnTheRingIsOfUse) {
  auto dataset = std::make_shared<MemoryDataset>(30, true);
  dataset->answer_wants(true);
  auto feed = make_feed(dataset, options_of(10));
  std::vector<int> times(30);
  count(run_epoch(*feed), times);
  EXPECT_EQ(times, std::vector<int>(30, 1));
  EXPECT_FALSE(dataset->wanted().empty());
}

TEST(Feed, WhatIsOrderedAndNeverComesIsReadAllTheSame) {
  auto dataset = std::make_shared<MemoryDataset>(10, true);
  for (std::uint32_t i = 0; i < 10; ++i) dataset->order(ItemId(i));
  auto feed = make_feed(dataset, options_of(10));
  std::vector<int> times(10);
  count(run_epoch(*feed), times);
  EXPECT_EQ(times, std::vector<int>(10, 1));
}

TEST(Feed, AnItemThatCannotBeReadIsAFailedRow) {
  auto dataset = std::make_shared<MemoryDataset>(10);
  dataset->fail(ItemId(4));
  auto feed = make_feed(dataset, options_of(10));
  ASSERT_TRUE(feed->begin_epoch());
  const auto ticket = feed->issue();
  const auto view = feed->reader()->wait(*ticket, std::chrono::seconds(10)).value();
  int failed = 0;
  for (const FedItem& item : view.items) {
    if (!item.failed) continue;
    ++failed;
    EXPECT_EQ(item.id, ItemId(4));
    EXPECT_EQ(item.code, Code::kNotFound);
    EXPECT_EQ(item.error, "item 4 is gone");
  }
  EXPECT_EQ(failed, 1);
}

TEST(Feed, ReadsNoFurtherAheadThanItIsToldTo) {
  auto dataset = std::make_shared<MemoryDataset>(1000);
  FeedOptions options = options_of(10);
  options.read_ahead = 2;
  auto feed = make_feed(dataset, options);
  ASSERT_TRUE(feed->begin_epoch());
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(dataset->reads(), 20u);
  Loop loop(*feed, 3);
  loop.fill();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(dataset->reads(), 50u);
}

TEST(Feed, MemoryBoundsTheReadingAhead) {
  auto dataset = std::make_shared<MemoryDataset>(1000);
  FeedOptions options = options_of(10);
  options.read_ahead = 50;
  options.memory_limit = Bytes(10 * 256 * 5);  // about five batches of ten small items
  auto feed = make_feed(dataset, options);
  ASSERT_TRUE(feed->begin_epoch());
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_LE(dataset->reads(), 60u);
  std::vector<int> times(1000);
  count(Loop(*feed).rest(), times);
  EXPECT_EQ(times, std::vector<int>(1000, 1));
}

TEST(Feed, ANewEpochAbandonsTheOldTicketsAtOnce) {
  auto dataset = std::make_shared<MemoryDataset>(40);
  dataset->set_latency(milliseconds(30));
  auto feed = make_feed(dataset, options_of(4));
  ASSERT_TRUE(feed->begin_epoch());
  Loop loop(*feed, 5);
  ASSERT_TRUE(loop.next());
  loop.fill();
  ASSERT_TRUE(feed->begin_epoch());
  for (const std::uint64_t ticket : loop.tickets) {
    EXPECT_TRUE(feed->reader()->wait(ticket, milliseconds(5)).value().abandoned);
  }
  feed->delivered(loop.tickets.front(), 0);  // of the old run: changes nothing
  EXPECT_EQ(feed->epoch(), 1u);
  EXPECT_EQ(feed->state().step, 0u);
  std::vector<int> times(40);
  count(Loop(*feed).rest(), times);
  EXPECT_EQ(times, std::vector<int>(40, 1));
}

TEST(Feed, ATicketKeepsItsSlotHoweverFarTheOthersRunAhead) {
  FeedOptions options = options_of(2);
  options.max_tickets = 4;
  auto feed = make_feed(std::make_shared<MemoryDataset>(200), options);
  ASSERT_TRUE(feed->begin_epoch());
  const auto reader = feed->reader();
  const std::uint64_t waits = feed->issue().value(), sent = feed->issue().value();
  ASSERT_TRUE(reader->wait(sent, std::chrono::seconds(10)) && reader->send(sent));
  std::vector<int> times(200);
  Loop loop(*feed, 2);
  count(loop.rest(), times);
  const BatchView late = reader->wait(waits, std::chrono::seconds(10)).value();
  const BatchView received = reader->receive(sent).value();
  EXPECT_FALSE(late.abandoned);
  for (const BatchView* view : {&late, &received}) {
    for (const FedItem& item : view->items) {
      EXPECT_EQ(as_text(item.data), content_of(item.id.value));
      ++times[item.id.value];
    }
    feed->delivered(view->ticket, 0);
  }
  EXPECT_EQ(times, std::vector<int>(200, 1));
  EXPECT_EQ(feed->state().epoch, 1u);
}

TEST(Feed, TicketsBeyondTheSlotsGiveTheOldestUp) {
  FeedOptions options = options_of(1);
  options.max_tickets = 2;  // four slots
  auto feed = make_feed(std::make_shared<MemoryDataset>(40), options);
  ASSERT_TRUE(feed->begin_epoch());
  std::vector<std::uint64_t> tickets;
  for (int i = 0; i < 5; ++i) tickets.push_back(feed->issue().value());
  EXPECT_EQ(feed->reader()->wait(tickets[0], milliseconds(1)).error().code, Code::kCancelled);
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_TRUE(feed->reader()->wait(tickets[i], std::chrono::seconds(10)));
  }
}

TEST(Feed, StateCountsWhatWasDeliveredNotWhatWasRead) {
  auto feed = make_feed(std::make_shared<MemoryDataset>(40), options_of(4));
  ASSERT_TRUE(feed->begin_epoch());
  Loop loop(*feed, 5);
  const Ids first = *loop.next();
  std::this_thread::sleep_for(milliseconds(30));
  const RankState state = feed->state();
  EXPECT_EQ(state.delivered.count(), 4u);
  for (const ItemId id : first) EXPECT_TRUE(state.delivered.contains(id));
  EXPECT_EQ(state.step, 1u);
  loop.rest();
  EXPECT_EQ(feed->state().epoch, 1u);  // the end of an epoch is the start of the next
  EXPECT_EQ(feed->state().delivered.count(), 0u);
}

TEST(Feed, ABatchThatWasNotDeliveredStaysUndelivered) {
  auto feed = make_feed(std::make_shared<MemoryDataset>(8), options_of(4));
  ASSERT_TRUE(feed->begin_epoch());
  const auto lost = feed->issue(), kept = feed->issue();
  EXPECT_FALSE(feed->issue());
  const auto view = feed->reader()->wait(*lost, std::chrono::seconds(5)).value();
  ASSERT_TRUE(feed->reader()->wait(*kept, std::chrono::seconds(5)));
  feed->delivered(*kept, 0);
  const RankState state = feed->state();
  EXPECT_EQ(state.epoch, 0u);
  for (const FedItem& item : view.items) EXPECT_FALSE(state.delivered.contains(item.id));
}

TEST(Feed, TheBoardSaysWhatIsWantedAndMovesToAnotherDaemon) {
  auto dataset = std::make_shared<MemoryDataset>(20, true);
  dataset->answer_wants(true);
  for (std::uint32_t i = 0; i < 10; ++i) dataset->pin(ItemId(i));
  FeedOptions options = options_of(5);
  options.seed = 77;
  auto feed = make_feed(dataset, options);
  ASSERT_TRUE(feed->begin_epoch());
  Loop loop(*feed, 1);
  ASSERT_TRUE(loop.next());
  const auto first = dataset->board();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->epoch.order_seed, 77u);
  EXPECT_FALSE(first->epoch.strict);
  EXPECT_EQ(ItemSet::from_words(20, first->settled)->count(), 10u);
  EXPECT_GE(ItemSet::from_words(20, first->taken)->count(), 5u);
  dataset->start_daemon();  // another one, with nothing
  for (int i = 0; i < 300 && dataset->joins() < 2; ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(dataset->joins(), 2);
  std::vector<int> times(20);
  count(loop.rest(), times);
  EXPECT_EQ(std::accumulate(times.begin(), times.end(), 0), 15);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(ItemSet::from_words(20, dataset->board()->taken)->count(), 20u);
}

TEST(Feed, SurvivesTheDaemonsDeathInTheMiddle) {
  auto dataset = std::make_shared<MemoryDataset>(60, true);
  dataset->answer_wants(true);
  for (std::uint32_t i = 0; i < 30; ++i) dataset->pin(ItemId(i));
  auto feed = make_feed(dataset, options_of(5));
  ASSERT_TRUE(feed->begin_epoch());
  Loop loop(*feed, 2);
  std::vector<int> times(60);
  for (int i = 0; i < 3; ++i) count({*loop.next()}, times);
  dataset->stop_daemon();
  count(loop.rest(), times);
  EXPECT_EQ(times, std::vector<int>(60, 1));
}

TEST(Feed, ASettledItemThatIsEvictedIsMissingAndCounted) {
  auto dataset = std::make_shared<MemoryDataset>(40, true);
  dataset->answer_wants(true);
  for (std::uint32_t i = 0; i < 40; ++i) dataset->pin(ItemId(i));
  FeedOptions options = options_of(4);
  options.read_ahead = 1;
  auto feed = make_feed(dataset, options);
  ASSERT_TRUE(feed->begin_epoch());
  Loop loop(*feed, 1);
  std::vector<int> times(40);
  count({*loop.next()}, times);
  for (std::uint32_t i = 0; i < 40; ++i) dataset->evict(ItemId(i));
  std::this_thread::sleep_for(milliseconds(1300));  // it looks once a second
  count(loop.rest(), times);
  EXPECT_EQ(times, std::vector<int>(40, 1));
  EXPECT_LT(feed->report().settled, 20u);
}

TEST(Feed, WaitingIsSplitByWhenTheBytesWereThere) {
  auto dataset = std::make_shared<MemoryDataset>(4);
  dataset->set_latency(milliseconds(60));
  auto feed = make_feed(dataset, options_of(2));
  ASSERT_TRUE(feed->begin_epoch());
  Loop loop(*feed, 1);
  ASSERT_TRUE(loop.next());
  EXPECT_GT(feed->report().waited_link_s, 0.04);
  std::this_thread::sleep_for(milliseconds(200));
  const auto ticket = feed->issue();
  ASSERT_TRUE(feed->reader()->wait(*ticket, std::chrono::seconds(5)));
  const double link = feed->report().waited_link_s;
  std::this_thread::sleep_for(milliseconds(50));
  feed->delivered(*ticket, 0, {.waited = milliseconds(50)});  // it was ready: somebody decoded
  EXPECT_NEAR(feed->report().waited_link_s, link, 0.002);
  EXPECT_NEAR(feed->report().waited_decode_s, 0.05, 0.02);
}

TEST(Feed, AForkedWorkerReadsTickets) {
  auto feed = make_feed(std::make_shared<MemoryDataset>(40), options_of(4));
  ASSERT_TRUE(feed->begin_epoch());
  const auto a = feed->issue(), b = feed->issue();
  const pid_t child = ::fork();
  if (child == 0) {
    auto view = feed->reader()->wait(*a, std::chrono::seconds(10));
    bool good = view && view->items.size() == 4;
    for (const FedItem& item : good ? view->items : std::vector<FedItem>{}) {
      good = good && as_text(item.data) == content_of(item.id.value);
    }
    feed.reset();  // as an interpreter may do at its end
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(feed->reader()->wait(*b, std::chrono::seconds(5)));
}

TEST(Feed, ClosingEndsTheWaiting) {
  auto dataset = std::make_shared<MemoryDataset>(4);
  dataset->set_latency(milliseconds(200));
  auto feed = make_feed(dataset, options_of(4));
  ASSERT_TRUE(feed->begin_epoch());
  const auto ticket = feed->issue();
  auto reader = feed->reader();
  std::jthread closer([&] {
    std::this_thread::sleep_for(milliseconds(20));
    feed->close();
  });
  EXPECT_EQ(reader->wait(*ticket, std::chrono::seconds(10)).error().code, Code::kCancelled);
  closer.join();
  EXPECT_EQ(feed->begin_epoch().error().code, Code::kCancelled);
}

TEST(Feed, WrongOptionsAndStatesAreRefused) {
  auto dataset = std::make_shared<MemoryDataset>(4);
  FeedOptions options = options_of(0);
  EXPECT_EQ(Feed::create(dataset, options, kEnvironment).error().code, Code::kInvalid);
  options = options_of(1);
  options.rank = 1;
  EXPECT_EQ(Feed::create(dataset, options, kEnvironment).error().code, Code::kInvalid);
  options = options_of(1);
  options.subset = {ItemId(4)};
  EXPECT_EQ(Feed::create(dataset, options, kEnvironment).error().code, Code::kInvalid);
  auto feed = make_feed(dataset, options_of(1));
  JobState other;
  other.items = 5;
  other.delivered = ItemSet(5);
  EXPECT_EQ(feed->load_state(other).error().code, Code::kInvalid);
}

TEST(Feed, SetEpochChoosesTheNextOne) {
  auto feed = make_feed(std::make_shared<MemoryDataset>(4), options_of(2));
  feed->set_epoch(7);
  ASSERT_TRUE(feed->begin_epoch());
  EXPECT_EQ(feed->epoch(), 7u);
  Loop(*feed).rest();
  EXPECT_EQ(feed->epoch(), 8u);
}

TEST(Feed, TheStateIsOfTheEpochThatWasSet) {
  auto dataset = std::make_shared<MemoryDataset>(6);
  auto feed = make_feed(dataset, options_of(2));
  feed->set_epoch(5);
  EXPECT_EQ(feed->state().epoch, 5u);
  ASSERT_TRUE(feed->begin_epoch());
  EXPECT_TRUE(Loop(*feed).next());
  feed->set_epoch(9);  // of the next one: this one runs
  EXPECT_EQ(feed->state().epoch, 5u);
  EXPECT_EQ(feed->state().step, 1u);
  const JobState loaded = merge({feed->state()}).value();
  feed->abandon();
  EXPECT_EQ(feed->state().epoch, 9u);
  EXPECT_EQ(feed->state().step, 0u);
  EXPECT_EQ(feed->state().delivered.count(), 0u);
  ASSERT_TRUE(feed->load_state(loaded));  // later than set_epoch
  EXPECT_EQ(feed->state().epoch, 5u);
  EXPECT_EQ(feed->batches(), 2u);
  feed->set_epoch(5);  // goes on with it
  EXPECT_EQ(feed->state().step, 1u);
  EXPECT_EQ(run_epoch(*feed).size(), 2u);
}

TEST(Feed, ReadsOfARunThatIsGivenUpEnd) {
  auto dataset = std::make_shared<MemoryDataset>(400);
  dataset->set_latency(milliseconds(20));
  FeedOptions options = options_of(200);
  options.read_ahead = 1;
  auto feed = make_feed(dataset, options);
  ASSERT_TRUE(feed->begin_epoch());
  const auto ticket = feed->issue();
  while (dataset->reads() == 0) std::this_thread::sleep_for(milliseconds(1));
  feed->abandon();
  EXPECT_TRUE(feed->reader()->wait(*ticket, std::chrono::seconds(1))->abandoned);
  const std::uint64_t then = dataset->reads();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LE(dataset->reads(), then + 16);  // those under way, by as many readers
}

TEST(Feed, AnEpochOfNoBatchesEndsTheOneBefore) {
  auto feed = make_feed(std::make_shared<MemoryDataset>(6), options_of(2));
  ASSERT_TRUE(feed->replay({{ItemId(1)}, {ItemId(2)}, {ItemId(3)}}));
  ASSERT_TRUE(feed->begin_epoch());
  EXPECT_TRUE(Loop(*feed).next());
  ASSERT_TRUE(feed->replay({}));
  EXPECT_TRUE(run_epoch(*feed).empty());
  EXPECT_EQ(feed->state().epoch, 2u);
}

}  // namespace
}  // namespace quiver::cache
