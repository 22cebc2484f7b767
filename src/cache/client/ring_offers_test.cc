#include "cache/client/ring_offers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace quiver::cache {
namespace {

// A view with its writer, and a sampler that wants all of its items.
class RingOffersTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kItems = 100;

  std::unique_ptr<EpochSampler> sampler(std::uint32_t batch, std::uint64_t epoch = 0) {
    EpochOptions options;
    options.epoch = epoch;
    options.batch_size = batch;
    return make_substituting_sampler(options, ItemSet(kItems, true), ItemSet(kItems));
  }
  void order(std::uint32_t id) { writer.order(ItemId(id)); }
  void arrive(std::uint32_t id) {
    writer.publish(ItemId(id), ViewWord::here(SegmentId(1), 0, false), 0);
  }

  ViewWriter writer = ViewWriter::create(kItems).value();
  io::Fd fd{::dup(writer.readers_fd())};
  ViewReader view = ViewReader::map(fd, kItems).value();
  RingOffers offers{kItems};
};

TEST_F(RingOffersTest, OffersTheOldestThatAreHereAndNoMoreThanAreWanted) {
  offers.start(view);
  auto s = sampler(2);
  for (const std::uint32_t id : {5u, 6u, 7u, 8u}) order(id);
  for (const std::uint32_t id : {8u, 7u, 6u}) arrive(id);  // 5 is still on its way
  EXPECT_EQ(offers.offer(view, *s), 2u);
  auto batch = s->next();
  ASSERT_TRUE(batch);
  std::ranges::sort(batch->items);
  EXPECT_EQ(batch->items, (std::vector{ItemId(6), ItemId(7)}));
  arrive(5);
  EXPECT_EQ(offers.offer(view, *s), 2u);
  batch = s->next();
  ASSERT_TRUE(batch);
  std::ranges::sort(batch->items);
  EXPECT_EQ(batch->items, (std::vector{ItemId(5), ItemId(8)}));
  EXPECT_EQ(offers.useful(), 0u);
}

TEST_F(RingOffersTest, OneStayInStagingServesAJobOnce) {
  offers.start(view);
  auto first = sampler(1);
  order(3);
  arrive(3);
  EXPECT_EQ(offers.offer(view, *first), 1u);
  offers.taken(first->next()->items);
  // Another epoch wants it again, and it still lies there.
  auto second = sampler(1, 1);
  offers.begin_epoch(view);
  EXPECT_EQ(offers.offer(view, *second), 0u);
  EXPECT_EQ(offers.useful(), 0u);
  order(3);  // it passes again
  EXPECT_EQ(offers.offer(view, *second), 1u);
}

TEST_F(RingOffersTest, CountsWhatPassesWithoutUse) {
  offers.start(view);
  auto s = sampler(1);
  for (const std::uint32_t id : {3u, 4u}) order(id), arrive(id);
  EXPECT_EQ(offers.offer(view, *s), 1u);
  offers.taken(s->next()->items);
  EXPECT_EQ(offers.useless(), 0u);  // its own order
  order(3);                         // another job's
  EXPECT_EQ(offers.offer(view, *s), 1u);
  EXPECT_EQ(offers.useless(), 1u);
}

TEST_F(RingOffersTest, AnotherDaemonsRingBarsNothing) {
  offers.start(view);
  auto first = sampler(1);
  for (std::uint32_t id = 0; id < 50; ++id) order(id);
  arrive(3);
  EXPECT_EQ(offers.offer(view, *first), 1u);
  offers.taken(first->next()->items);
  ViewWriter other = ViewWriter::create(kItems).value();
  const io::Fd other_fd(::dup(other.readers_fd()));
  ViewReader other_view = ViewReader::map(other_fd, kItems).value();
  other.order(ItemId(3));
  other.publish(ItemId(3), ViewWord::here(SegmentId(1), 0, false), 0);
  offers.start(other_view);
  auto second = sampler(1, 1);
  EXPECT_EQ(offers.offer(other_view, *second), 1u);
}

TEST_F(RingOffersTest, WhatHasLeftTheWindowIsNotOffered) {
  offers.start(view);
  auto s = sampler(1);
  for (const std::uint32_t id : {1u, 2u}) order(id);
  EXPECT_EQ(offers.offer(view, *s), 0u);
  EXPECT_GT(offers.useful(), 0u);
  writer.retire_until(1);
  arrive(1);
  EXPECT_EQ(offers.offer(view, *s), 0u);
  arrive(2);
  EXPECT_EQ(offers.offer(view, *s), 1u);
  EXPECT_EQ(s->next()->items, std::vector{ItemId(2)});
}

TEST_F(RingOffersTest, TheOldestIsOfferedThoughItIsNotHere) {
  offers.start(view);
  auto s = sampler(1);
  for (const std::uint32_t id : {9u, 4u}) order(id);
  EXPECT_EQ(offers.offer(view, *s), 0u);
  EXPECT_TRUE(offers.offer_oldest(*s));
  EXPECT_EQ(s->next()->items, std::vector{ItemId(9)});
}

}  // namespace
}  // namespace quiver::cache
