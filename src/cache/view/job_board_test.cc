#include "cache/view/job_board.h"

#include <gtest/gtest.h>

#include <thread>

#include "cache/view/board_layout.h"
#include "cache/view/view_layout.h"

namespace quiver::cache {
namespace {

using Words = std::vector<std::uint64_t>;

struct JobBoardTest : ::testing::Test {
  static constexpr std::uint32_t kItems = 100;
  io::RealFiles files;
  io::Fd fd = make_job_board(kItems).value();
  JobBoardWriter writer = JobBoardWriter::map(fd, kItems).value();

  Result<std::optional<BoardCopy>> read() { return read_job_board(files, fd.get(), kItems); }
  BoardCopy copy() { return read().value().value(); }
  void poke(std::size_t offset, std::uint32_t value) {
    ASSERT_TRUE(files.pwrite(fd.get(), std::as_bytes(std::span(&value, 1)), offset));
  }
};

TEST_F(JobBoardTest, NothingBeforeTheFirstBegin) {
  EXPECT_EQ(read().value().has_value(), false);
  const io::Fd fresh = make_job_board(kItems).value();
  EXPECT_EQ(read_job_board(files, fresh.get(), kItems).value().has_value(), false);
  EXPECT_EQ(job_board_memory(kItems), files.stat(fresh.get())->size);
}

TEST_F(JobBoardTest, TellsWhatTheRankDoes) {
  const BoardEpoch epoch{.epoch = 4,
                         .order_seed = 9,
                         .strict = true,
                         .shuffled = false,
                         .active = true,
                         .world = 8,
                         .rank = 3,
                         .part = 13};
  writer.begin(epoch, Words{1, 2}, Words{4, 8});
  const Pace pace{.items_per_second = 1234.5, .steps = 40, .error = 0.02};
  const JobCounters counters{1, 2, 3, 4, 5, 6, 7, 8};
  writer.set_pace(pace, 32);
  writer.set_counters(counters);
  writer.take(ItemId(0));
  writer.take(ItemId(99));
  const auto got = copy();
  EXPECT_EQ(got.epoch.epoch, 4u);
  EXPECT_EQ(got.epoch.order_seed, 9u);
  EXPECT_TRUE(got.epoch.strict && !got.epoch.shuffled && got.epoch.active);
  EXPECT_EQ(got.epoch.world, 8u);
  EXPECT_EQ(got.epoch.rank, 3u);
  EXPECT_EQ(got.epoch.part, 13u);
  EXPECT_EQ(got.pace, pace);
  EXPECT_EQ(got.counters, counters);
  EXPECT_EQ(got.counters.items(), 10u);
  EXPECT_EQ(got.batch_size, 32u);
  EXPECT_EQ(got.settled, (Words{1, 2}));
  EXPECT_EQ(got.taken, (Words{5, 8 | std::uint64_t{1} << 35}));
  writer.end();
  EXPECT_FALSE(copy().epoch.active);
  EXPECT_FALSE(copy().epoch.listed);
  writer.begin({.listed = true}, Words{0, 0}, Words{0, 0});
  EXPECT_TRUE(copy().epoch.listed);
}

TEST_F(JobBoardTest, TheLastBegunIsNewestWhateverItsEpoch) {
  writer.begin({.epoch = 5}, Words{0, 0}, Words{7, 0});
  writer.begin({.epoch = 6}, Words{0, 0}, Words{1, 0});
  EXPECT_EQ(copy().epoch.epoch, 6u);
  writer.begin({.epoch = 2}, Words{0, 0}, Words{0, 0});  // resumed from a checkpoint
  EXPECT_EQ(copy().epoch.epoch, 2u);
  EXPECT_EQ(copy().taken, (Words{0, 0}));
  auto other = JobBoardWriter::map(fd, kItems).value();  // mapped again
  other.begin({.epoch = 3}, Words{0, 0}, Words{0, 0});
  EXPECT_EQ(copy().epoch.epoch, 3u);
}

TEST_F(JobBoardTest, WhileAHalfIsBeingFilledTheOtherCounts) {
  writer.begin({.epoch = 0}, Words{0, 0}, Words{3, 0});
  writer.begin({.epoch = 1}, Words{0, 0}, Words{0, 0});
  poke(layout::half_at(kItems, 2) + layout::kSequence, 0);
  EXPECT_EQ(copy().epoch.epoch, 0u);
  EXPECT_EQ(copy().taken, (Words{3, 0}));
}

TEST_F(JobBoardTest, NonsenseIsCorrupt) {
  writer.begin({.epoch = 1, .world = 2, .rank = 1}, Words{0, 0}, Words{0, ~std::uint64_t{0}});
  EXPECT_EQ(copy().taken[1], (std::uint64_t{1} << 36) - 1) << "there are only 100 items";
  const auto corrupt = [&] { return !read() && read().error().code == Code::kCorrupt; };
  const std::size_t half = layout::half_at(kItems, 1);
  poke(half + layout::kWorld, 1);
  EXPECT_TRUE(corrupt()) << "rank 1 of 1";
  poke(half + layout::kWorld, 2);
  poke(half + layout::kFlags, 16);
  EXPECT_TRUE(corrupt());
  poke(half + layout::kFlags, 0);
  EXPECT_FALSE(corrupt());
  poke(layout::kRate + 4, 0x7ff80000);
  EXPECT_TRUE(corrupt()) << "NaN";
  poke(layout::kRate + 4, 0xbff00000);
  EXPECT_TRUE(corrupt()) << "negative";
  poke(layout::kRate + 4, 0);
  poke(layout::kRateError + 4, 0x7ff00000);
  EXPECT_TRUE(corrupt()) << "infinite";
  poke(layout::kRateError + 4, 0);
  poke(half + layout::kPart, 1000);
  EXPECT_EQ(copy().epoch.part, kItems);
  poke(layout::kVersion, 1);
  EXPECT_EQ(read().error().code, Code::kVersion);
  poke(layout::kVersion, 2);
  EXPECT_EQ(read_job_board(files, fd.get(), kItems + 64).error().code, Code::kCorrupt);
  const io::Fd small = make_job_board(1).value();
  auto one = JobBoardWriter::map(small, 1);
  EXPECT_EQ(read_job_board(files, small.get(), kItems).error().code, Code::kCorrupt);
}

TEST_F(JobBoardTest, WhatWasTakenBeforeTheSwitchIsReadAfterIt) {
  const auto taken = [&](std::uint64_t sequence) {
    return read_taken(files, fd.get(), kItems, sequence).value();
  };
  writer.begin({.epoch = 0}, Words{0, 0}, Words{0, 0});
  const std::uint64_t first = copy().sequence;
  writer.take(ItemId(70));
  writer.begin({.epoch = 1}, Words{0, 0}, Words{0, 0});
  EXPECT_EQ(copy().sequence, first + 1);
  EXPECT_EQ(taken(first), (Words{0, std::uint64_t{1} << 6}));
  EXPECT_EQ(taken(first + 1), (Words{0, 0}));
  EXPECT_EQ(taken(first + 2), std::nullopt);
  writer.begin({.epoch = 2}, Words{0, 0}, Words{0, 0});
  EXPECT_EQ(taken(first), std::nullopt) << "overwritten";
}

// A copy is of one epoch: all its taken bits are that epoch's pattern or rose from it.
TEST_F(JobBoardTest, EpochsAreNotMixed) {
  std::uint64_t good = 0, mixed = 0;
  std::jthread rank([&](std::stop_token stop) {
    for (std::uint64_t e = 1; !stop.stop_requested(); ++e) {
      writer.begin({.epoch = e, .order_seed = e}, Words{e, e & 0xfffff}, Words{e, e & 0xfffff});
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    const auto got = read();
    if (!got || !*got) continue;
    const auto& c = **got;
    const Words expected{c.epoch.epoch, c.epoch.epoch & 0xfffff};
    const bool whole =
        c.epoch.order_seed == c.epoch.epoch && c.settled == expected && c.taken == expected;
    whole ? ++good : ++mixed;
  }
  EXPECT_GT(good, 1000u);
  EXPECT_EQ(mixed, 0u);
}

// The worked example of docs/formats/job_board.md.
TEST(JobBoard, GoldenBytes) {
  io::RealFiles files;
  const io::Fd fd = make_job_board(3).value();
  auto writer = JobBoardWriter::map(fd, 3).value();
  writer.begin({.epoch = 7, .order_seed = 0x1122, .world = 4, .rank = 2, .part = 2}, Words{1},
               Words{4});
  writer.set_pace({.items_per_second = 100, .steps = 64, .error = 0.5}, 32);
  writer.set_counters({1, 2, 3, 4, 5, 6, 7, 8});
  writer.take(ItemId(1));
  std::string bytes(job_board_memory(3).value, '\0');
  ASSERT_TRUE(files.pread(fd.get(), std::as_writable_bytes(std::span(bytes)), 0));
  const auto golden =
      io::read_file(files, QUIVER_SOURCE_DIR "/tests/vectors/job_board_v2.bin", 64_KiB);
  ASSERT_TRUE(golden) << golden.error().message;
  EXPECT_EQ(bytes, *golden);
}

}  // namespace
}  // namespace quiver::cache
