#include "cache/store/store.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "cache/store/directory.h"
#include "cache/store/store_testing.h"

namespace quiver::cache {
namespace {

using StoreTest = StoreFixture;

TEST_F(StoreTest, KeepsWhatItIsGivenAcrossStarts) {
  std::vector<std::string> items;
  for (const std::size_t length : {0u, 1u, 4095u, 4096u, 4097u, 100'000u}) {
    items.push_back(content(length, length));
  }
  {
    auto store = open();
    for (const auto& item : items) ASSERT_TRUE(put(*store, item));
    for (const auto& item : items) EXPECT_TRUE(has(*store, item));
    EXPECT_EQ(store->stats().items, items.size());
    EXPECT_EQ(put(*store, items[3]).value(), *store->find(sha256(as_bytes(items[3]))));
    EXPECT_EQ(store->stats().items, items.size());
  }
  auto store = open();
  for (const auto& item : items) EXPECT_TRUE(has(*store, item));
  EXPECT_FALSE(store->segments().front().open);
  EXPECT_TRUE(put(*store, content(77, 10)));
  EXPECT_EQ(store->segments().size(), 2u);
}

TEST_F(StoreTest, VerifiesWhatComesIn) {
  const std::string bytes = "abc";
  EXPECT_EQ(VerifiedItem::verify(sha256(as_bytes("abd")), as_bytes(bytes)).error().code,
            Code::kCorrupt);
}

TEST_F(StoreTest, LanesLieApartAndSealed) {
  auto store = open();
  const Lane a{"a", true, 7}, b{"b", false, 0};
  const auto one = put(*store, content(1, 100), a), two = put(*store, content(2, 100), b);
  EXPECT_NE(one->segment, two->segment);
  EXPECT_EQ(store->lane_of(one->segment), a);
  store->evict(one->segment);
  EXPECT_NE(put(*store, content(3, 100), a)->segment, one->segment);
  const auto four = put(*store, content(4, 1000), b, Bytes(1050));  // 100 are there
  EXPECT_NE(four->segment, two->segment);
  EXPECT_EQ(put(*store, content(5, 9000), b, Bytes(1050))->offset, 0u);
  EXPECT_EQ(put(*store, "x", Lane{std::string(36, 'g')}).error().code, Code::kInvalid);
}

TEST_F(StoreTest, EvictionFreesTheBlocksThatAReaderHoldsOpen) {
  auto store = open();
  const std::string bytes = content(1, 1 << 20);
  const auto at = put(*store, bytes);
  const auto reader = store->open_segment(at->segment);
  const Bytes before = store->stats().allocated;
  EXPECT_GE(store->evict(at->segment), 1_MiB);
  EXPECT_FALSE(store->find(sha256(as_bytes(bytes)))) << "at once";
  EXPECT_TRUE(store->segments().empty());
  EXPECT_LE(store->stats().staying() + 1_MiB, before);
  ASSERT_TRUE(store->wait_until_freed(std::chrono::seconds(10)));
  EXPECT_LE(store->stats().allocated + 1_MiB, before);
  EXPECT_EQ(files.stat(reader->get())->blocks, Bytes());
  EXPECT_FALSE(store->find(sha256(as_bytes(bytes))));
  EXPECT_FALSE(files.stat(segment_path(at->segment)));
  EXPECT_EQ(store->evict(at->segment), Bytes());
  std::string out(bytes.size(), '\0');
  EXPECT_EQ(store->read(*at, std::as_writable_bytes(std::span(out))).error().code, Code::kNotFound);
  EXPECT_EQ(store->stats().quarantined, 0u);
  EXPECT_NE(put(*store, bytes)->segment, at->segment);
}

TEST_F(StoreTest, ANumberIsNeverUsedTwice) {
  std::uint32_t last = 0;
  for (int start = 0; start < 3; ++start) {
    auto store = open();
    const auto at = put(*store, content(1, 10));
    EXPECT_TRUE(start == 0 || at->segment.value > last);
    last = at->segment.value;
    EXPECT_GT(store->evict(at->segment), Bytes());
  }
}

TEST_F(StoreTest, RefusesWhatBreaksTheBudgetAndTheFloor) {
  options.disk_limit = 256_KiB;
  auto store = open();
  const auto refused = put(*store, content(1, 300'000));
  EXPECT_EQ(refused.error().code, Code::kNoSpace);
  EXPECT_NE(refused.error().message.find("disk_limit"), std::string::npos);
  EXPECT_TRUE(store->segments().empty());
  EXPECT_TRUE(put(*store, content(2, 30'000)));
  store->set_disk_limit(Bytes(4096));
  EXPECT_EQ(put(*store, content(3, 10)).error().code, Code::kNoSpace);
  store.reset();
  options.disk_floor = 1.0;
  store = open();
  const auto floor = put(*store, content(4, 10));
  EXPECT_EQ(floor.error().code, Code::kNoSpace);
  EXPECT_NE(floor.error().message.find("disk_floor"), std::string::npos);
}

TEST_F(StoreTest, RestartCountsWhatIsThere) {
  auto store = open();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(put(*store, content(i, 20'000), {"t"}, 200_KiB));
  const Bytes before = store->stats().allocated;
  store.reset();
  std::ofstream(options.directory + "/foreign") << std::string(50'000, 'x');
  store = open();
  EXPECT_GE(store->stats().allocated, before + Bytes(50'000));
  EXPECT_GE(store->stats().allocated, disk_usage(options.directory));
}

TEST_F(StoreTest, DamageIsAMissThatIsCounted) {
  auto store = open();
  const std::vector<std::string> items{content(1, 5000), content(2, 5000), content(3, 5000),
                                       content(4, 5000)};
  std::vector<StoredAt> at;
  for (const auto& item : items) at.push_back(put(*store, item, {"t"}, Bytes(5000)).value());
  const auto fd = files.open(segment_path(at[0].segment), O_RDWR, 0);
  ASSERT_TRUE(files.pwrite(fd->get(), as_bytes("flip"), 2500));
  const auto cut = files.open(segment_path(at[1].segment), O_RDWR, 0);
  ASSERT_TRUE(files.truncate(cut->get(), 4999));
  ASSERT_TRUE(files.remove(segment_path(at[2].segment)));
  for (int i = 0; i < 3; ++i) {
    std::string out(5000, '\0');
    const auto k = static_cast<std::size_t>(i);
    EXPECT_EQ(store->read(at[k], std::as_writable_bytes(std::span(out))).error().code,
              Code::kCorrupt);
    EXPECT_FALSE(store->find(sha256(as_bytes(items[k]))));
    EXPECT_EQ(store->stats().quarantined, k + 1);
    EXPECT_TRUE(put(*store, items[k])) << "fetched again";
    EXPECT_TRUE(has(*store, items[k]));
  }
  EXPECT_TRUE(has(*store, items[3]));
  EXPECT_GT(store->evict(at[2].segment), Bytes());
  EXPECT_TRUE(store->wait_until_freed(std::chrono::seconds(10))) << "absent on removal is success";
  store.reset();
  store = open();  // nothing bad comes back
  for (const auto& item : items) EXPECT_TRUE(has(*store, item));
  EXPECT_EQ(store->stats().quarantined, 0u);
}

TEST_F(StoreTest, WhatIsMovedLiesInItsNewPlaceOnly) {
  const Lane staged{"test"}, pinned{"test", true, 5};
  StoredAt moved;
  {
    auto store = open();
    const auto early = put(*store, content(9, 5000), pinned);  // an open segment of a lower number
    const auto first = put(*store, content(1, 5000), staged);
    ASSERT_TRUE(put(*store, content(2, 5000), staged));
    const std::string bytes = content(1, 5000);
    const auto item = VerifiedItem::verify(sha256(as_bytes(bytes)), as_bytes(bytes));
    moved = store->move(pinned, *item, 1_MiB).value();
    EXPECT_EQ(moved.segment, early->segment);
    EXPECT_EQ(store->find(item->hash()), moved);
    EXPECT_EQ(store->items_of(first->segment).size(), 1u);
    EXPECT_EQ(store->stats().items, 3u);
  }
  auto store = open();  // after a kill
  EXPECT_EQ(store->find(sha256(as_bytes(content(1, 5000)))), moved);
  EXPECT_TRUE(has(*store, content(1, 5000)));
  const auto rest = store->find(sha256(as_bytes(content(2, 5000))));
  ASSERT_TRUE(rest);
  EXPECT_TRUE(has(*store, content(2, 5000)));
  EXPECT_GT(store->evict(rest->segment), Bytes());
  EXPECT_TRUE(has(*store, content(1, 5000)));
}

TEST_F(StoreTest, ForgottenItemsStayForgotten) {
  auto store = open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(put(*store, content(i, 100)));
  store->forget(sha256(as_bytes(content(1, 100))));
  EXPECT_EQ(store->items_of(store->segments()[0].id).size(), 2u);
  store.reset();
  store = open();
  EXPECT_TRUE(has(*store, content(0, 100)));
  EXPECT_FALSE(has(*store, content(1, 100)));
  EXPECT_TRUE(has(*store, content(2, 100)));
}

TEST_F(StoreTest, AfterAnUncleanBootItemsAreVerifiedFirst) {
  std::vector<StoredAt> at;
  {
    auto store = open();
    for (int i = 0; i < 20; ++i) at.push_back(put(*store, content(i, 3000)).value());
  }
  const auto fd = files.open(segment_path(at[5].segment), O_RDWR, 0);
  ASSERT_TRUE(files.pwrite(fd->get(), as_bytes("lost"), at[5].offset + 100));
  options.boot_id = "boot-2";
  auto store = open();
  EXPECT_EQ(store->stats().suspect, Bytes(60'000));
  EXPECT_EQ(store->stats().items, 0u);
  EXPECT_FALSE(has(*store, content(0, 3000)));
  ASSERT_TRUE(put(*store, content(19, 3000)));  // came anew meanwhile
  EXPECT_FALSE(store->scrub(Bytes(7000)).value());
  EXPECT_EQ(store->stats().suspect, Bytes(54'000));
  EXPECT_TRUE(has(*store, content(1, 3000)));
  store.reset();  // killed in the midst of it: the same boot, still suspect
  store = open();
  EXPECT_EQ(store->stats().suspect, Bytes(60'000));
  EXPECT_TRUE(has(*store, content(19, 3000))) << "written in this boot";
  int slices = 1;
  while (!store->scrub(Bytes(7000)).value()) ++slices;
  EXPECT_EQ(slices, 10);
  EXPECT_EQ(store->stats().quarantined, 1u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(has(*store, content(i, 3000)), i != 5) << i;
  store.reset();
  EXPECT_EQ(open()->stats().suspect, Bytes());
}

TEST_F(StoreTest, ACleanMarkIsTrusted) {
  auto store = open();
  ASSERT_TRUE(put(*store, content(1, 3000)));
  store->close_cleanly();
  store.reset();
  options.boot_id = "boot-2";
  store = open();
  EXPECT_TRUE(has(*store, content(1, 3000)));
  store.reset();  // and not twice: this run left no mark
  options.boot_id = "boot-3";
  EXPECT_FALSE(has(*open(), content(1, 3000)));
}

TEST_F(StoreTest, MadeAnewWhenRemovedBelowIt) {
  auto store = open();
  ASSERT_TRUE(put(*store, content(1, 3000)));
  EXPECT_FALSE(store->recreate_if_gone().value());
  for (const char* what : {"", "/segments"}) {
    std::filesystem::remove_all(options.directory + what);
    const int warnings = log.warnings;
    EXPECT_TRUE(store->recreate_if_gone().value());
    EXPECT_EQ(log.warnings, warnings + 1);
    EXPECT_FALSE(has(*store, content(1, 3000)));
    EXPECT_EQ(store->stats().items, 0u);
    EXPECT_TRUE(put(*store, content(1, 3000)));
    EXPECT_TRUE(has(*store, content(1, 3000)));
    EXPECT_GE(store->stats().allocated, disk_usage(options.directory));
  }
  EXPECT_EQ(Store::open(options, files, clock, log).error().code, Code::kUnavailable);
}

TEST_F(StoreTest, OneDaemonADirectoryAndItIsNamed) {
  auto store = open();
  const auto second = Store::open(options, files, clock, log);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_NE(second.error().message.find(std::to_string(::getpid())), std::string::npos);
}

TEST_F(StoreTest, TouchesNothingWithoutItsMarker) {
  std::filesystem::create_directories(options.directory);
  std::ofstream(options.directory + "/thesis.tex") << "years";
  const auto refused = Store::open(options, files, clock, log);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_EQ(files.list(options.directory)->size(), 1u);
}

TEST_F(StoreTest, ANewerFormatIsRefused) {
  open();
  std::ofstream(options.directory + "/quiver-cache") << "quiver-cache 2\n";
  EXPECT_EQ(Store::open(options, files, clock, log).error().code, Code::kVersion);
}

TEST_F(StoreTest, ManyLanesFewDescriptors) {
  rlimit old{};
  ::getrlimit(RLIMIT_NOFILE, &old);
  rlimit low = old;
  low.rlim_cur = 200;
  ::setrlimit(RLIMIT_NOFILE, &low);
  auto store = open();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 300; ++i) {
      const Lane lane{"pins", true, static_cast<std::uint8_t>(i % 256)};
      const auto at = put(*store, content(1000 * round + i, 50), lane);
      ASSERT_TRUE(at) << at.error().message;
    }
  }
  ::setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_EQ(store->segments().size(), 256u);
  EXPECT_EQ(store->stats().items, 600u);
}

TEST(Directory, FiveCausesFiveMessages) {
  const FileSystem writable{}, read_only{0, true};
  const auto say = [](bool existed, const FileSystem& system, int failed) {
    return explain_failure("/d", existed, system, os_error(failed, "opening /d/x")).message;
  };
  const std::vector<std::string> messages{say(false, writable, EACCES), say(true, writable, EACCES),
                                          say(true, read_only, EROFS), say(true, writable, ENOSPC)};
  const std::vector<std::string> words{"cannot be created", "cannot be written",
                                       "read-only file system", "no space"};
  for (std::size_t i = 0; i < words.size(); ++i) {
    EXPECT_NE(messages[i].find(words[i]), std::string::npos) << messages[i];
    EXPECT_NE(messages[i].find("cache_dir"), std::string::npos) << messages[i];
    for (std::size_t j = 0; j < i; ++j) EXPECT_EQ(messages[i].find(words[j]), std::string::npos);
  }
  EXPECT_STREQ(network_file_system(0x6969), "NFS");
  EXPECT_STREQ(network_file_system(0x0bd00bd0), "Lustre");
  EXPECT_EQ(network_file_system(0xef53), nullptr);
}

TEST_F(StoreTest, NotADirectory) {
  std::ofstream(options.directory) << "a file";
  const auto refused = Store::open(options, files, clock, log);
  EXPECT_NE(refused.error().message.find("is not a directory"), std::string::npos);
  options.directory += "/below";
  const auto below = Store::open(options, files, clock, log);
  EXPECT_NE(below.error().message.find("cannot be created"), std::string::npos)
      << below.error().message;
}

// As another user, for whom modes mean something.
TEST_F(StoreTest, UnwritableAndUnreadableForAPlainUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  std::filesystem::create_directories(options.directory);
  ASSERT_EQ(::chmod(std::filesystem::path(options.directory).parent_path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(options.directory.c_str(), 0555), 0);
  ASSERT_EQ(::chown(options.directory.c_str(), 65534, 65534), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    const auto refused = Store::open(options, files, clock, log);
    const bool said =
        !refused && refused.error().message.find("cannot be written") != std::string::npos;
    ::_exit(said ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(::chmod(options.directory.c_str(), 0755), 0);
  const pid_t reader = ::fork();
  if (reader == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    auto store = open();
    const auto at = put(*store, content(1, 100));
    ::chmod(segment_path(at->segment).c_str(), 0);
    std::string out(100, '\0');
    const auto read = store->read(*at, std::as_writable_bytes(std::span(out)));
    ::_exit(!read && read.error().code == Code::kCorrupt && store->stats().quarantined == 1 ? 0
                                                                                            : 1);
  }
  ::waitpid(reader, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace quiver::cache
