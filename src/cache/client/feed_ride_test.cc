// A job that rides on another's order and reads some of its items itself.
#include <gtest/gtest.h>

#include <set>

#include "cache/client/testing/feed_loop.h"

namespace quiver::cache {
namespace {

using std::chrono::milliseconds;

TEST(FeedRide, WhatWasAskedForAndIsGoneIsAskedForAgainWhateverElseArrives) {
  constexpr std::uint32_t kBatch = 8;
  auto dataset = std::make_shared<MemoryDataset>(64, true);
  const auto first_batch_passes = [&] {
    for (std::uint32_t i = 0; i < kBatch; ++i) dataset->stage(ItemId(i));
  };
  first_batch_passes();
  FeedOptions options = options_of(kBatch);
  options.read_ahead = 1;
  auto feed = make_feed(dataset, options);
  ASSERT_TRUE(feed->begin_epoch());
  Loop loop(*feed, 1);
  ASSERT_TRUE(loop.next());
  first_batch_passes();  // for another job: of no use to this one
  while (dataset->wanted().size() < kBatch) std::this_thread::sleep_for(milliseconds(1));
  const std::vector<ItemId> wanted = dataset->wanted();
  std::set<ItemId> useless(wanted.begin(), wanted.end());
  for (std::uint32_t i = 0; i < kBatch; ++i) useless.insert(ItemId(i));
  // None of it comes. Too little of what another job reads trickles by.
  std::uint32_t next = 0;
  for (std::uint32_t n = 1; n < kBatch; ++n) {
    while (useless.contains(ItemId(next))) ++next;
    dataset->stage(ItemId(next++));
    std::this_thread::sleep_for(milliseconds(60));
  }
  EXPECT_GT(dataset->wanted().size(), wanted.size());
}

}  // namespace
}  // namespace quiver::cache
