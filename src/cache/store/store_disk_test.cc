// A disk that stalls, and one that cannot be read for a while.
#include <fcntl.h>

#include <cerrno>
#include <thread>

#include "cache/store/disk_floor.h"
#include "cache/store/store_testing.h"
#include "io/faulty_files.h"

namespace quiver::cache {
namespace {

using namespace std::chrono_literals;

class StoreDiskTest : public StoreFixture {
 protected:
  io::FaultyFiles faulty{files};

  template <class F>
  static Duration took(F&& f) {
    const auto from = std::chrono::steady_clock::now();
    f();
    return std::chrono::steady_clock::now() - from;
  }
  bool marked_clean() {
    const auto text = io::read_file(files, options.directory + "/boot", 4_KiB);
    return text && decode_boot(*text)->clean;
  }
};

TEST_F(StoreDiskTest, EvictingWaitsForNoDiskAndAppendingForTheRoom) {
  options.disk_limit = 1_MiB;
  auto store = open_with(faulty);
  const auto at = put(*store, content(1, 700'000));
  faulty.add({.op = io::FileOp::kTruncate, .stall = 700ms});
  Bytes leaving;
  EXPECT_LT(took([&] { leaving = store->evict(at->segment); }), 100ms);
  EXPECT_GE(leaving, Bytes(700'000));
  const StoreStats now = store->stats();
  EXPECT_EQ(now.leaving, leaving);
  EXPECT_GE(now.allocated, disk_usage(options.directory)) << "counts until it is free";
  EXPECT_EQ(now.segments, 0u);
  EXPECT_FALSE(store->lane_of(at->segment));
  Result<StoredAt> second = error(Code::kIo, "not yet");
  EXPECT_GT(took([&] { second = put(*store, content(2, 700'000)); }), 300ms);
  EXPECT_TRUE(second) << second.error().message;
  EXPECT_EQ(put(*store, content(3, 700'000)).error().code, Code::kNoSpace);
}

TEST_F(StoreDiskTest, WhatIsBeingWrittenCanBeEvictedAndIsWrittenElsewhere) {
  auto store = open_with(faulty);
  const auto at = put(*store, content(1, 5000));
  faulty.add({.op = io::FileOp::kPwrite, .path = ".seg", .times = 1, .stall = 700ms});
  Result<StoredAt> second = error(Code::kIo, "not yet");
  std::jthread writing([&] { second = put(*store, content(2, 5000)); });
  std::this_thread::sleep_for(200ms);
  EXPECT_LT(took([&] {
              EXPECT_GT(store->evict(at->segment), Bytes());
              store->segments();
              static_cast<void>(store->find(sha256(as_bytes(content(2, 5000)))));
            }),
            100ms);
  writing.join();
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_NE(second->segment, at->segment);
  EXPECT_TRUE(has(*store, content(2, 5000)));
  EXPECT_FALSE(has(*store, content(1, 5000)));
  EXPECT_TRUE(store->wait_until_freed(5s));
  EXPECT_FALSE(files.stat(segment_path(at->segment)));
  EXPECT_GE(store->stats().allocated, disk_usage(options.directory));
}

TEST_F(StoreDiskTest, AnEvictionThatFailsIsTriedAgain) {
  auto store = open_with(faulty);
  const auto at = put(*store, content(1, 50'000));
  faulty.add({.op = io::FileOp::kTruncate, .times = 1, .errno_value = EIO});
  store->evict(at->segment);
  EXPECT_TRUE(store->wait_until_freed(5s));
  const StoreStats now = store->stats();
  EXPECT_EQ(now.leaving, Bytes()) << "nobody may count on it";
  EXPECT_GE(now.allocated, disk_usage(options.directory));
  EXPECT_GE(now.allocated, Bytes(50'000));
  EXPECT_TRUE(store->segments().empty());
  EXPECT_EQ(log.warnings, 1);
  for (int i = 0; i < 100 && files.stat(segment_path(at->segment)); ++i) {
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_FALSE(files.stat(segment_path(at->segment)));
  EXPECT_LT(store->stats().allocated, Bytes(50'000));
}

TEST_F(StoreDiskTest, WhatIsSealedIsSyncedAllTheTime) {
  auto store = open_with(faulty);
  constexpr int kSegments = 20;
  for (int i = 0; i < kSegments; ++i) {
    ASSERT_TRUE(put(*store, content(static_cast<std::uint64_t>(i), 3000), {"t"}, Bytes(3000)));
  }
  const std::uint64_t begun = faulty.calls(io::FileOp::kSync);
  for (int i = 0; i < 60 && faulty.calls(io::FileOp::kSync) < begun + 2 * (kSegments - 1); ++i) {
    std::this_thread::sleep_for(50ms);
  }
  const std::uint64_t synced = faulty.calls(io::FileOp::kSync);
  EXPECT_GE(synced, begun + 2 * (kSegments - 1));
  store->close_cleanly();
  EXPECT_LE(faulty.calls(io::FileOp::kSync) - synced, 4u) << "the open one, and the boot file";
  EXPECT_TRUE(marked_clean());
}

TEST_F(StoreDiskTest, ClosingIsBoundedAndThenWithoutTheMark) {
  auto store = open_with(faulty);
  ASSERT_TRUE(put(*store, content(1, 3000)));
  faulty.add({.op = io::FileOp::kSync, .path = ".seg", .stall = 4000ms});
  EXPECT_LT(took([&] { store->close_cleanly(); }), 3500ms);
  EXPECT_EQ(log.warnings, 1);
  EXPECT_FALSE(marked_clean());
}

TEST_F(StoreDiskTest, WhatAKilledDaemonLeftIsSyncedBeforeTheNextMark) {
  ASSERT_TRUE(put(*open(), content(1, 3000)));  // it had no time
  auto store = open_with(faulty);
  faulty.add({.op = io::FileOp::kSync, .path = ".seg", .errno_value = EIO});
  store->close_cleanly();
  EXPECT_FALSE(marked_clean());
}

TEST_F(StoreDiskTest, WhatCannotBeReadNowIsLeftAloneUntilTheNextStart) {
  constexpr std::size_t kLength = 20'000;
  for (const io::FileFault& fault :
       {io::FileFault{.op = io::FileOp::kOpen, .path = ".idx", .times = 1, .errno_value = EMFILE},
        io::FileFault{.op = io::FileOp::kOpen, .path = ".seg", .times = 1, .errno_value = EACCES},
        io::FileFault{.op = io::FileOp::kPread, .path = ".idx", .times = 1, .errno_value = EIO},
        io::FileFault{.op = io::FileOp::kStat, .path = ".seg", .times = 1, .errno_value = EIO}}) {
    std::filesystem::remove_all(options.directory);
    {
      auto store = open();
      ASSERT_TRUE(put(*store, content(1, kLength), {"t"}, Bytes(1)));
      ASSERT_TRUE(put(*store, content(2, kLength), {"t"}, Bytes(1)));
    }
    faulty.clear();
    faulty.add(fault);
    auto store = open_with(faulty);
    EXPECT_EQ(store->stats().unusable, 1u);
    EXPECT_EQ(store->stats().segments, 1u);
    EXPECT_EQ(store->segments().size(), 1u) << "nobody evicts it";
    EXPECT_GE(store->stats().allocated, disk_usage(options.directory));
    EXPECT_EQ(log.warnings.exchange(0), 1);
    EXPECT_EQ(has(*store, content(1, kLength)) + has(*store, content(2, kLength)), 1);
    store->evict(SegmentId(0)), store->evict(SegmentId(1));
    store->wait_until_freed(5s);
    store.reset();
    store = open();
    EXPECT_EQ(store->stats().unusable, 0u);
    EXPECT_EQ(store->stats().items, 1u) << "it is back";
  }
}

TEST_F(StoreDiskTest, TheLogCountsWhileItGrows) {
  auto store = open();
  const Bytes before = store->stats().allocated;
  const auto fd = files.open(options.directory + "/quiverd.log", O_WRONLY | O_CREAT, 0600);
  ASSERT_TRUE(files.pwrite(fd->get(), as_bytes(std::string(300'000, 'l')), 0));
  for (int i = 0; i < 140 && store->stats().allocated < before + Bytes(300'000); ++i) {
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_GE(store->stats().allocated, before + Bytes(300'000));
}

TEST_F(StoreDiskTest, TheFloorRefusesOnlyWhatTheDiskHasNoRoomForNow) {
  const auto leave = [&](std::uint64_t left) { faulty.set_space({Bytes(1000), Bytes(left)}); };
  ManualClock standing;
  DiskFloor floor("/", 0.1, faulty, standing);
  leave(700);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(floor.take(Bytes(400))) << "nothing of it was written";
  EXPECT_TRUE(floor.take(Bytes(600)));
  EXPECT_EQ(floor.take(Bytes(601)).error().code, Code::kNoSpace);
  leave(100), standing.advance(1s);
  EXPECT_EQ(floor.take(Bytes(1)).error().code, Code::kNoSpace);
  leave(101);
  EXPECT_TRUE(floor.take(Bytes(1))) << "some was freed in the same second";
}

}  // namespace
}  // namespace quiver::cache
