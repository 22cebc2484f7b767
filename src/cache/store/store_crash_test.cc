// The store against sudden death and a disk that fails.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "cache/store/store_testing.h"
#include "io/faulty_files.h"

namespace quiver::cache {
namespace {

using StoreCrashTest = StoreFixture;

std::size_t length_of(std::uint64_t n) {
  return 1 + n * 7919 % 20'000;
}

// Appends and evicts until it is killed.
[[noreturn]] void work(Store& store, std::uint64_t from) {
  for (std::uint64_t n = from;; ++n) {
    const Lane lane{"crash", n % 2 == 0, static_cast<std::uint8_t>(n % 3)};
    static_cast<void>(put(store, content(n, length_of(n)), lane, 100_KiB));
    if (n % 5 == 0) static_cast<void>(store.evict(store.segments().front().id));
    if (n % 7 == 0) store.forget(sha256(as_bytes(content(n - 1, length_of(n - 1)))));
  }
}

TEST_F(StoreCrashTest, KilledAtAnyInstantItHasNoWrongByte) {
  std::mt19937 random(7);
  std::uint64_t found_in_all = 0;
  for (int round = 0; round < 25; ++round) {
    const std::uint64_t from = static_cast<std::uint64_t>(round) * 1'000'000;
    const pid_t child = ::fork();
    if (child == 0) work(*open(), from);
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random() % 40'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself: " << status;

    auto store = open();
    ASSERT_TRUE(store);
    for (const SegmentInfo& segment : store->segments()) {
      EXPECT_FALSE(segment.open);
      for (const Sha256& hash : store->items_of(segment.id)) {
        bool found = false;
        ASSERT_TRUE(reads_right_or_not_at_all(*store, hash, &found));
        EXPECT_TRUE(found) << "found, but not readable";
        found_in_all += found;
      }
    }
    EXPECT_EQ(store->stats().quarantined, 0u);
    EXPECT_GE(store->stats().allocated, disk_usage(options.directory));
  }
  EXPECT_GT(found_in_all, 100u) << "the test appended too little to mean anything";
}

// A fixed course of everything the store does with the disk; false at the first wrong byte.
void course(Store& store, std::vector<std::string>& items) {
  for (int i = 0; i < 12; ++i) {
    const Lane lane{"f", true, static_cast<std::uint8_t>(i % 2)};
    const auto& item = items[static_cast<std::size_t>(i)];
    const bool stored = put(store, item, lane, 12_KiB).has_value();
    EXPECT_TRUE(!stored || store.find(sha256(as_bytes(item))));
    EXPECT_TRUE(reads_right_or_not_at_all(store, sha256(as_bytes(item))));
    if (i == 5) store.forget(sha256(as_bytes(items[2])));
    if (i == 7 && !store.segments().empty()) {
      static_cast<void>(store.evict(store.segments().front().id));
    }
  }
  static_cast<void>(store.scrub(1_MiB));
  static_cast<void>(store.recreate_if_gone());
  store.close_cleanly();
}

class StoreFaultTest : public StoreFixture, public ::testing::WithParamInterface<io::FileFault> {
 protected:
  StoreFaultTest() : StoreFixture(true) {}
};

TEST_P(StoreFaultTest, AtEveryCall) {
  std::vector<std::string> items;
  for (std::uint64_t i = 0; i < 12; ++i) items.push_back(content(i, 1500 + 700 * i));
  std::uint64_t calls = 0;
  for (std::uint64_t skip = 0;; ++skip) {
    ASSERT_LT(skip, 2000u);
    std::filesystem::remove_all(options.directory);
    ASSERT_TRUE(put(*open(), content(500, 3000)));  // something to be recovered
    io::FaultyFiles faulty(files);
    io::FileFault fault = GetParam();
    fault.skip = skip;
    fault.times = 1;
    faulty.add(fault);
    {
      auto store = Store::open(options, faulty, clock, log);
      if (store) {
        course(**store, items);
        EXPECT_GE((*store)->stats().allocated, disk_usage(options.directory)) << "call " << skip;
        // It still works.
        faulty.clear();
        const std::string after = content(999, 5000);
        EXPECT_TRUE(put(**store, after)) << "call " << skip;
        EXPECT_TRUE(has(**store, after));
        EXPECT_GE((*store)->stats().allocated, disk_usage(options.directory)) << "call " << skip;
      }
      calls = faulty.calls(fault.op);
      if (faulty.injected() == 0) break;  // the course has no more calls than that
    }
    auto again = open();
    for (const auto& item : items) {
      EXPECT_TRUE(reads_right_or_not_at_all(*again, sha256(as_bytes(item))));
    }
    EXPECT_GE(again->stats().allocated, disk_usage(options.directory));
  }
  EXPECT_GT(calls, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, StoreFaultTest,
    ::testing::Values(io::FileFault{.op = io::FileOp::kPwrite, .errno_value = ENOSPC},
                      io::FileFault{.op = io::FileOp::kPwrite, .errno_value = EIO, .shorten = 30},
                      io::FileFault{.op = io::FileOp::kOpen, .errno_value = EMFILE},
                      io::FileFault{.op = io::FileOp::kPread, .errno_value = EIO},
                      io::FileFault{.op = io::FileOp::kPread, .shorten = 10},
                      io::FileFault{.op = io::FileOp::kTruncate, .errno_value = EIO},
                      io::FileFault{.op = io::FileOp::kStat, .errno_value = EIO},
                      io::FileFault{.op = io::FileOp::kRemove, .errno_value = EBUSY},
                      io::FileFault{.op = io::FileOp::kRename, .errno_value = EIO},
                      io::FileFault{.op = io::FileOp::kSync, .errno_value = EIO},
                      io::FileFault{.op = io::FileOp::kSpace, .errno_value = EIO}));

// A write fails and so does taking it back: the garbage at the end must never be found.
TEST_F(StoreCrashTest, WhatCannotBeTakenBackIsSealedOff) {
  io::FaultyFiles faulty(files);
  auto store = open_with(faulty);
  const std::string good = content(1, 3000), lost = content(2, 3000), next = content(3, 3000);
  const auto at = put(*store, good);
  faulty.add({.op = io::FileOp::kPwrite, .path = ".idx", .errno_value = EIO, .shorten = 20});
  faulty.add({.op = io::FileOp::kTruncate, .errno_value = EIO});
  EXPECT_FALSE(put(*store, lost));
  faulty.clear();
  EXPECT_NE(put(*store, next)->segment, at->segment);
  EXPECT_FALSE(has(*store, lost));
  store.reset();
  store = open();
  EXPECT_TRUE(has(*store, good));
  EXPECT_FALSE(has(*store, lost));
  EXPECT_TRUE(has(*store, next));
}

TEST_F(StoreCrashTest, AFullDiskIsASlowDown) {
  io::FaultyFiles faulty(files);
  auto store = open_with(faulty);
  faulty.set_capacity(50_KiB);
  int stored = 0, refused = 0;
  for (std::uint64_t i = 0; i < 30; ++i) {
    const auto at = put(*store, content(i, 4000));
    at ? ++stored : ++refused;
    EXPECT_TRUE(at || at.error().code == Code::kNoSpace);
  }
  EXPECT_GT(stored, 5);
  EXPECT_GT(refused, 5);
  faulty.clear();
  EXPECT_TRUE(put(*store, content(99, 4000)));
  for (std::uint64_t i = 0; i < 30; ++i) {
    EXPECT_TRUE(reads_right_or_not_at_all(*store, sha256(as_bytes(content(i, 4000)))));
  }
}

}  // namespace
}  // namespace quiver::cache
