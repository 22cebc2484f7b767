// What a feed's board says of its loop: what it got, how long it waited, and how fast it would be.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/client/testing/feed_loop.h"

namespace quiver::cache {
namespace {

using std::chrono::milliseconds;

BoardCopy settled_board(MemoryDataset& dataset) {
  std::this_thread::sleep_for(milliseconds(250));  // it is told ten times a second
  return dataset.board().value();
}

// A loop that computes 8 ms a step, or what a busy machine makes of that, over items that are
// there, or come when they are asked for. Returns what it is said to be able to do, as a part of
// what it can.
double pace_of_a_loop(milliseconds latency) {
  auto dataset = std::make_shared<MemoryDataset>(400, true);
  dataset->set_latency(latency);
  if (latency == milliseconds(0)) {
    for (std::uint32_t i = 0; i < 400; ++i) dataset->pin(ItemId(i));
  }
  FeedOptions options = options_of(10);
  options.reader_threads = 1;
  options.mode = Mode::kStrict;  // misses are drawn, and waited for
  auto feed = make_feed(dataset, options);
  EXPECT_TRUE(feed->begin_epoch());
  Loop loop(*feed, 1);
  std::vector<double> computed;
  while (loop.next()) {
    const Instant began = real_clock.now();
    std::this_thread::sleep_for(milliseconds(8));
    computed.push_back(std::chrono::duration<double>(real_clock.now() - began).count());
  }
  const BoardCopy board = settled_board(*dataset);
  EXPECT_EQ(board.counters.items(), 400u);
  EXPECT_EQ(board.counters.steps, 40u);
  EXPECT_EQ(board.epoch.part, 400u);
  const double waited = static_cast<double>(board.counters.waited_link_ns) / 1e9;
  EXPECT_NEAR(waited, feed->report().waited_link_s, 1e-6);
  EXPECT_GE(board.pace.steps, 12u);
  std::ranges::nth_element(computed, computed.begin() + 20);
  return board.pace.items_per_second / (10 / computed[20]);
}

TEST(FeedPace, IsWhatTheLoopWouldDoWithoutWaiting) {
  EXPECT_NEAR(pace_of_a_loop(milliseconds(0)), 1, 0.1) << "bound by its compute";
  EXPECT_NEAR(pace_of_a_loop(milliseconds(3)), 1, 0.1) << "by the link: 30 ms a batch";
}

TEST(FeedPace, CountersGoOnOverEpochsAndDaemons) {
  auto dataset = std::make_shared<MemoryDataset>(60, true);
  dataset->answer_wants(true);
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < 60; ++i) {
    bytes += content_of(i).size();
    if (i < 20) dataset->pin(ItemId(i));
  }
  auto feed = make_feed(dataset, options_of(5));
  run_epoch(*feed);
  JobCounters counters = settled_board(*dataset).counters;
  EXPECT_EQ(counters.pinned, 20u);
  EXPECT_EQ(counters.items(), 60u);
  EXPECT_EQ(counters.bytes, bytes);
  dataset->stop_daemon();
  run_epoch(*feed);
  dataset->start_daemon();
  run_epoch(*feed);
  while (dataset->joins() < 2) std::this_thread::sleep_for(milliseconds(10));
  counters = settled_board(*dataset).counters;
  EXPECT_EQ(counters.items(), 180u);
  EXPECT_EQ(counters.bytes, 3 * bytes);
  EXPECT_EQ(counters.steps, 36u);
  EXPECT_GE(counters.direct, 60u);
}

// Four workers need 40 ms a batch each and get one every 20 ms from the link: what the loop could
// do is what they could do, not what they did.
TEST(FeedPace, WorkersThatWaitForTheLinkAreNotSlow) {
  auto dataset = std::make_shared<MemoryDataset>(640, true);
  for (std::uint32_t i = 0; i < 640; ++i) dataset->pin(ItemId(i));
  auto feed = make_feed(dataset, options_of(10));
  ASSERT_TRUE(feed->begin_epoch());
  while (const auto ticket = feed->issue()) {
    ASSERT_TRUE(feed->reader()->wait(*ticket, std::chrono::seconds(5)));
    std::this_thread::sleep_for(milliseconds(20));
    feed->delivered(*ticket, 0,
                    {.waited = milliseconds(18),
                     .decoding = milliseconds(40),
                     .since_decoded = Duration(0),
                     .workers = 4});
  }
  EXPECT_NEAR(settled_board(*dataset).pace.items_per_second, 1000, 100);
}

}  // namespace
}  // namespace quiver::cache
