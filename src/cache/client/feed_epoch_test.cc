// Where an epoch begins: joining, replaying, resuming, what is counted for it, and the gap before
// it.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/client/testing/feed_loop.h"

namespace quiver::cache {
namespace {

using std::chrono::milliseconds;

FeedOptions strict_of(std::uint32_t batch) {
  FeedOptions options = options_of(batch);
  options.mode = Mode::kStrict;
  options.seed = 5;
  return options;
}

TEST(FeedEpoch, ARankThatIsThereAlreadyIsRefusedUntilItIsNot) {
  auto dataset = std::make_shared<MemoryDataset>(20, true);
  dataset->answer_wants(true);
  dataset->refuse_joins(error(Code::kInvalid, "rank 0 of this job is there already"));
  auto feed = make_feed(dataset, options_of(5));
  for (int i = 0; i < 2; ++i) {
    const Status begun = feed->begin_epoch();
    ASSERT_FALSE(begun);
    EXPECT_EQ(begun.error().code, Code::kInvalid);
    EXPECT_NE(begun.error().message.find("rank 0 of this job is there already"), std::string::npos);
  }
  EXPECT_EQ(dataset->reads(), 0u);
  EXPECT_FALSE(feed->issue());
  dataset->refuse_joins(std::nullopt);
  std::vector<int> times(20);
  count(run_epoch(*feed), times);
  EXPECT_EQ(times, std::vector<int>(20, 1));
  EXPECT_EQ(feed->state().epoch, 1u);  // the refusals began none
}

TEST(FeedEpoch, ADaemonThatCannotTakeTheRankInIsNoReasonToStop) {
  auto dataset = std::make_shared<MemoryDataset>(20, true);
  dataset->answer_wants(true);
  dataset->refuse_joins(error(Code::kNoSpace, "too many jobs"));
  EXPECT_EQ(run_epoch(*make_feed(dataset, options_of(5))).size(), 4u);
}

TEST(FeedEpoch, WhatIsReadWhileThereIsNoDaemonIsTakenOnTheNextOnesBoard) {
  auto dataset = std::make_shared<MemoryDataset>(20, true);
  dataset->answer_wants(true);
  FeedOptions options = options_of(5);
  options.read_ahead = 1;
  auto feed = make_feed(dataset, options);
  ASSERT_TRUE(feed->begin_epoch());
  Loop loop(*feed, 1);
  ASSERT_TRUE(loop.next());
  dataset->refuse_joins(error(Code::kUnavailable, "not yet"));
  dataset->start_daemon();
  while (dataset->joins() < 2) std::this_thread::sleep_for(milliseconds(10));
  ASSERT_TRUE(loop.next());
  while (dataset->reads() < 15) std::this_thread::sleep_for(milliseconds(10));
  std::this_thread::sleep_for(milliseconds(50));
  dataset->refuse_joins(std::nullopt);
  while (dataset->joins() < 3) std::this_thread::sleep_for(milliseconds(10));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(ItemSet::from_words(20, dataset->board()->taken)->count(), 15u);
}

TEST(FeedEpoch, AReplayDeliversTheSameBatches) {
  auto dataset = std::make_shared<MemoryDataset>(40, true);
  dataset->answer_wants(true);
  for (std::uint32_t i = 0; i < 20; ++i) dataset->pin(ItemId(i));
  auto feed = make_feed(dataset, options_of(8));
  auto again = make_feed(std::make_shared<MemoryDataset>(40), options_of(8));
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::vector<Ids> recorded = run_epoch(*feed);
    ASSERT_TRUE(again->replay(recorded));
    EXPECT_EQ(again->batches(), recorded.size());
    EXPECT_EQ(run_epoch(*again), recorded);
    EXPECT_EQ(again->state().chain, feed->state().chain);
  }
  EXPECT_EQ(again->begin_epoch().error().code, Code::kInvalid);  // a third was not given
  EXPECT_EQ(again->replay({{ItemId(40)}}).error().code, Code::kInvalid);
  EXPECT_EQ(again->replay({{}}).error().code, Code::kInvalid);
}

// More batches than the dataset has items, and items that repeat, cut at any step and resumed.
TEST(FeedEpoch, AReplayIsExactlyTheBatchesThatWereGiven) {
  std::vector<Ids> given;
  for (std::uint32_t i = 0; i < 25; ++i) given.push_back({ItemId(i % 4), ItemId(i * i % 4)});
  for (const bool daemon : {false, true}) {
    for (const std::uint32_t cut : {0u, 1u, 4u, 11u, 24u}) {
      const auto dataset = std::make_shared<MemoryDataset>(4, daemon);
      auto feed = make_feed(dataset, options_of(1));
      ASSERT_TRUE(feed->replay(given));
      EXPECT_EQ(feed->batches(), 25u);
      ASSERT_TRUE(feed->begin_epoch());
      EXPECT_EQ(feed->batches(), 25u);
      Loop loop(*feed);
      for (std::uint32_t i = 0; i < cut; ++i) EXPECT_EQ(loop.next(), given[i]);
      const auto state = merge({feed->state()});
      ASSERT_TRUE(state) << state.error().message;
      auto resumed = make_feed(dataset, options_of(1));
      ASSERT_TRUE(resumed->load_state(*state));
      const std::vector<Ids> left(given.begin() + cut, given.end());
      ASSERT_TRUE(resumed->replay(left));
      EXPECT_EQ(run_epoch(*resumed), left);
      EXPECT_EQ(resumed->state().epoch, 1u);
      EXPECT_EQ(loop.rest(), left);
      EXPECT_EQ(resumed->state().chain, feed->state().chain);
    }
  }
}

// S12
TEST(FeedEpoch, AStrictRunThatIsCutAndResumedHasTheChainOfOneThatIsNot) {
  const auto dataset = std::make_shared<MemoryDataset>(53);
  auto whole = make_feed(dataset, strict_of(8));
  run_epoch(*whole);
  run_epoch(*whole);
  for (const std::uint32_t cut : {0u, 3u, 7u}) {  // in the first epoch, and at its end
    auto first = make_feed(dataset, strict_of(8));
    ASSERT_TRUE(first->begin_epoch());
    Loop loop(*first);
    for (std::uint32_t i = 0; i < cut; ++i) ASSERT_TRUE(loop.next());
    auto second = make_feed(dataset, strict_of(8));
    ASSERT_TRUE(second->load_state(merge({first->state()}).value()));
    EXPECT_EQ(second->state().chain, first->state().chain);
    while (second->state().epoch < 2) run_epoch(*second);
    EXPECT_EQ(second->state().chain, whole->state().chain) << cut;
  }
}

// S11: it goes on where it stood; what was passed over comes last.
TEST(FeedEpoch, AStrictRunThatIsResumedGivesWhatWasPassedOverLast) {
  const auto dataset = std::make_shared<MemoryDataset>(53);
  const std::vector<Ids> whole = run_epoch(*make_feed(dataset, strict_of(4)));
  auto first = make_feed(dataset, strict_of(4));
  ASSERT_TRUE(first->begin_epoch());
  Loop loop(*first, 6);
  loop.fill();
  for (const std::size_t i : {0u, 1u, 3u, 5u}) {
    ASSERT_TRUE(first->reader()->wait(loop.tickets[i], std::chrono::seconds(10)));
    first->delivered(loop.tickets[i], 0);
  }
  auto second = make_feed(dataset, strict_of(4));
  ASSERT_TRUE(second->load_state(merge({first->state()}).value()));
  Ids expected, got;
  for (const std::size_t i : {4u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 2u}) {
    expected.insert(expected.end(), whole[i].begin(), whole[i].end());
  }
  for (const Ids& batch : run_epoch(*second)) got.insert(got.end(), batch.begin(), batch.end());
  EXPECT_EQ(got, expected);
}

TEST(FeedEpoch, OriginBytesAreThoseOfTheNodeAndOfThisProcess) {
  auto alone = std::make_shared<MemoryDataset>(30);
  const std::uint64_t total = alone->manifest().total_bytes().value;
  auto feed = make_feed(alone, options_of(7));
  for (int epoch = 0; epoch < 2; ++epoch) {
    run_epoch(*feed);
    EXPECT_EQ(feed->report().origin_bytes, total);
  }
  auto dataset = std::make_shared<MemoryDataset>(30, true);
  dataset->answer_wants(true);
  dataset->read_from_origin(1'000'000);  // before the job
  auto served = make_feed(dataset, options_of(10));
  ASSERT_TRUE(served->begin_epoch());
  Loop loop(*served, 1);
  ASSERT_TRUE(loop.next());
  dataset->read_from_origin(500);
  EXPECT_EQ(served->report().origin_bytes, 500u);
  dataset->start_daemon();  // counts from its own beginning
  while (dataset->joins() < 2) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(served->report().origin_bytes, 500u);
  dataset->read_from_origin(7);
  EXPECT_EQ(served->report().origin_bytes, 1'000'507u + 500u);
}

TEST(FeedEpoch, AReportDoesNotWaitForADaemonToStart) {
  auto dataset = std::make_shared<MemoryDataset>(20, true);
  dataset->answer_wants(true);
  auto feed = make_feed(dataset, options_of(5));
  run_epoch(*feed);
  dataset->set_connect_time(milliseconds(400));
  std::this_thread::sleep_for(milliseconds(20));
  const Instant began = real_clock.now();
  EXPECT_EQ(feed->report().samples, 20u);
  EXPECT_LT(real_clock.now() - began, milliseconds(200));
  dataset->set_connect_time(milliseconds(0));
}

TEST(FeedEpoch, AStarvedDrawLooksAtMostAThousandTimesASecond) {
  auto dataset = std::make_shared<MemoryDataset>(6000, true);
  for (std::uint32_t i = 0; i < 6000; ++i) dataset->order(ItemId(i));
  auto feed = make_feed(dataset, options_of(64));
  ASSERT_TRUE(feed->begin_epoch());
  ASSERT_TRUE(feed->issue());
  const Instant end = real_clock.now() + milliseconds(500);
  const std::uint64_t before = dataset->looks();
  std::uint64_t changes = 0;
  for (; real_clock.now() < end; ++changes) {  // as when another job's items arrive
    dataset->notify();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  EXPECT_GT(changes, 1000u);
  EXPECT_LE(dataset->looks() - before, 510u);
}

// At steps of 10 ms a gap of less than two is asked for.
TEST(FeedEpoch, TheGapBetweenWarmEpochsIsShort) {
  auto dataset = std::make_shared<MemoryDataset>(6000, true);
  for (std::uint32_t i = 0; i < 6000; ++i) dataset->pin(ItemId(i));
  auto feed = make_feed(dataset, options_of(64));
  run_epoch(*feed);
  Duration least = std::chrono::hours(1);
  for (int i = 0; i < 4; ++i) {
    const Instant delivered = real_clock.now();
    ASSERT_TRUE(feed->begin_epoch());
    ASSERT_TRUE(feed->reader()->wait(*feed->issue(), std::chrono::seconds(10)));
    least = std::min<Duration>(least, real_clock.now() - delivered);
    ASSERT_TRUE(feed->begin_epoch());  // the rest of it is nothing to this test
    ASSERT_TRUE(feed->issue());
  }
  EXPECT_LT(least, milliseconds(20));
  RecordProperty("gap_us", static_cast<int>(least.count() / 1000));
}

}  // namespace
}  // namespace quiver::cache
