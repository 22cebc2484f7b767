// What the daemon does when its disk, its bytes or its limits are not as they should be.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include <nlohmann/json.hpp>

#include "cache/server/testing/daemon_fixture.h"
#include "cache/store/segment_format.h"
#include "io/testing/scripted_http.h"

namespace quiver::cache {
namespace {

using namespace std::chrono_literals;
using testing::DaemonTest;
using testing::RawClient;
using testing::TestData;

constexpr std::uint32_t kItems = 60;
constexpr std::size_t kLength = 20'000;

class ServerFaults : public DaemonTest {
 protected:
  ServerFaults() : data(folder + "/data", kItems, kLength) {}

  static nlohmann::json status(RawClient& client) { return nlohmann::json::parse(client.status()); }
  static std::vector<std::uint32_t> numbers(std::uint32_t first, std::uint32_t last) {
    std::vector<std::uint32_t> all;
    for (; first < last; ++first) all.push_back(first);
    return all;
  }
  // Turns over the bytes of an item that is here, behind the daemon's back.
  void damage(const RawClient& client, std::uint32_t item, const std::string& directory) {
    const ViewWord word = client.view->word(ItemId(item));
    std::fstream file(directory + "/segments/" + data_name(word.segment()),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(word.offset()));
    file << "damaged";
    ASSERT_TRUE(file.good());
  }
  static WarmReply warm(RawClient& client, std::uint32_t dataset = 0) {
    const auto reply = client.call<WarmReply>(Request::kWarm, WarmRequest{dataset, 10'000});
    EXPECT_TRUE(reply) << reply.error().message;
    return reply.value_or(WarmReply{});
  }
  TestData data;
};

TEST_F(ServerFaults, ACopyThatIsSaidToBeDamagedIsLookedAtAndReplaced) {
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  ASSERT_TRUE(client.fetch({1, 2}));
  const auto is_gone = [&](std::uint32_t item, const ViewWord& word) {
    const auto reply = client.call<DamagedReply>(
        Request::kDamaged, DamagedRequest{0, item, word.segment().value, word.offset()});
    EXPECT_TRUE(reply) << reply.error().message;
    return reply && reply->gone;
  };
  const ViewWord before = client.view->word(ItemId(1)), sound = client.view->word(ItemId(2));
  damage(client, 1, cache());
  EXPECT_TRUE(is_gone(1, before));
  EXPECT_EQ(status(client)["disk"]["quarantined"], 1);
  ASSERT_TRUE(client.fetch({1}));
  EXPECT_NE(client.view->word(ItemId(1)), before);
  EXPECT_EQ(client.read(1, data.contents[1].size()), data.contents[1]);
  EXPECT_TRUE(is_gone(1, before)) << "that copy is, the new one is not looked at";
  EXPECT_FALSE(is_gone(2, sound)) << "one that is right stays where it is";
  EXPECT_EQ(client.view->word(ItemId(2)), sound);
  EXPECT_EQ(status(client)["disk"]["quarantined"], 1);
  EXPECT_EQ(
      client.call<DamagedReply>(Request::kDamaged, DamagedRequest{0, 99999, 1, 0}).error().code,
      Code::kInvalid);
}

TEST_F(ServerFaults, AStopNeedsNoHello) {
  start();
  auto connection = rpc::Connection::connect(socket(), RawClient::soon());
  ASSERT_TRUE(connection);
  const auto status_first =
      (*connection)->call(static_cast<std::uint16_t>(Request::kStatus), {}, {}, RawClient::soon());
  EXPECT_EQ(status_first.error().code, Code::kInvalid);
  EXPECT_TRUE(
      (*connection)->call(static_cast<std::uint16_t>(Request::kStop), {}, {}, RawClient::soon()));
  thread.join();
}

TEST_F(ServerFaults, ASocketThatWasRemovedIsThereAgain) {
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  for (const std::string& what : {socket(), cache()}) {
    std::filesystem::remove_all(what);
    if (what == cache()) std::filesystem::remove(socket());
    EXPECT_TRUE(eventually(
        [&] { return rpc::Connection::connect(socket(), RawClient::soon()).has_value(); }));
    RawClient another(socket());
    EXPECT_TRUE(another.open(data));
    EXPECT_TRUE(client.fetch({3})) << "who was connected stays so";
  }
}

TEST_F(ServerFaults, ADaemonWhoseDirectoryAnotherHasTakenLeaves) {
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.hello);
  std::filesystem::remove_all(cache());
  StoreOptions options;
  options.directory = cache();
  options.disk_limit = 64_MiB;
  options.boot_id = boot_id;
  const auto other = Store::open(options, files, clock, sink);
  if (!other) GTEST_SKIP() << "the daemon was faster";
  thread.join();  // run_until_stopped() returns
}

TEST_F(ServerFaults, AStartWithASmallerLimitEvictsDownToIt) {
  start();
  {
    RawClient client(socket());
    ASSERT_TRUE(client.open(data));
    EXPECT_EQ(warm(client).items_here, kItems);
  }
  stop();
  ASSERT_GT(on_disk(), Bytes(1'200'000));
  settings.disk_limit.size = Bytes(600'000);
  start();
  EXPECT_TRUE(eventually([&] { return on_disk() <= *settings.disk_limit.size; }));
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  std::uint32_t right = 0;
  for (std::uint32_t i = 0; i < kItems; ++i) {
    if (client.view->word(ItemId(i)).residency() != Residency::kHere) continue;
    EXPECT_TRUE(client.read(i, data.contents[i].size()) == data.contents[i]);
    ++right;
  }
  EXPECT_GT(right, 5u);
  EXPECT_LT(right, kItems);
}

TEST_F(ServerFaults, ADirectoryThatIsRemovedBeginsAnewWithOneWarning) {
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  ASSERT_TRUE(client.fetch(numbers(0, 30)));
  std::filesystem::remove_all(cache());
  // Those that are fetched into the ruins come, too.
  const auto fetched = client.fetch(numbers(30, 40));
  ASSERT_TRUE(fetched);
  for (const auto& result : fetched->results)
    EXPECT_EQ(result.state, FetchResult::kHere) << result.message;
  EXPECT_TRUE(
      eventually([&] { return client.view->word(ItemId(3)).residency() == Residency::kAbsent; }));
  ASSERT_TRUE(client.fetch(numbers(0, kItems)));
  EXPECT_TRUE(client.read(3, data.contents[3].size()) == data.contents[3]);
  EXPECT_TRUE(std::filesystem::exists(cache() + "/quiver-cache"));
  EXPECT_EQ(status(client)["state"], "ok");
  EXPECT_EQ(sink.warnings().size(), 1u) << ::testing::PrintToString(sink.warnings());
}

TEST_F(ServerFaults, ADiskThatRefusesIsReportedWhileItDoes) {
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  ASSERT_TRUE(client.fetch(numbers(0, 10)));
  faulty.add({.op = io::FileOp::kPwrite, .path = "/segments/", .errno_value = EIO});
  const auto fetched = client.fetch({20});
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->results[0].state, FetchResult::kFailed);
  EXPECT_EQ(fetched->results[0].code, static_cast<std::uint16_t>(Code::kIo));
  EXPECT_EQ(status(client)["state"], "degraded");
  EXPECT_TRUE(client.read(4, data.contents[4].size()) == data.contents[4]);
  faulty.clear();
  EXPECT_EQ(client.fetch({20})->results[0].state, FetchResult::kHere);
}

TEST_F(ServerFaults, ADiskThatIsFullBelowTheLimitMakesTheCacheSmallerForAWhile) {
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  ASSERT_TRUE(client.fetch(numbers(0, 10)));
  faulty.set_capacity(Bytes(0));
  // What is here goes for it at first; then there is nothing more to evict.
  ASSERT_TRUE(client.fetch(numbers(10, 14)));
  EXPECT_TRUE(eventually([&] { return status(client)["state"] == "degraded"; }));
  const std::uint64_t low = status(client)["disk"]["limit_now"];
  EXPECT_LT(low, settings.disk_limit.size->value / 4);
  faulty.clear();
  EXPECT_TRUE(eventually([&] { return status(client)["state"] == "ok"; }));
  EXPECT_GT(status(client)["disk"]["limit_now"], low);
  EXPECT_EQ(client.fetch({20})->results[0].state, FetchResult::kHere);
}

TEST_F(ServerFaults, AfterTheMachineFellWhatIsRightIsFoundAgainAndWhatIsNotIsGone) {
  start();
  {
    RawClient client(socket());
    ASSERT_TRUE(client.open(data));
    EXPECT_EQ(warm(client).items_here, kItems);
    std::filesystem::copy(cache(), folder + "/fallen", std::filesystem::copy_options::recursive);
    damage(client, 7, folder + "/fallen");
  }
  stop();
  std::filesystem::remove_all(cache());
  std::filesystem::rename(folder + "/fallen", cache());
  boot_id = "another";
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  EXPECT_TRUE(
      eventually([&] { return status(client)["datasets"][0]["items_here"] == kItems - 1; }));
  const auto after = status(client);
  EXPECT_EQ(after["disk"]["suspect"], 0);
  EXPECT_EQ(after["disk"]["quarantined"], 1);
  EXPECT_EQ(after["datasets"][0]["origin_reads"], 0);
  EXPECT_EQ(client.view->word(ItemId(7)).residency(), Residency::kAbsent);
  EXPECT_TRUE(client.read(8, data.contents[8].size()) == data.contents[8]);
}

TEST_F(ServerFaults, TwoDatasetsDivideTheBudget) {
  const TestData other(folder + "/other", kItems, kLength, 8);
  settings.disk_limit.size = Bytes(1'500'000);
  start();
  RawClient first(socket()), second(socket());
  ASSERT_TRUE(first.open(data));
  const WarmReply alone = warm(first);
  ASSERT_TRUE(second.open(other));
  const WarmReply its = warm(second), rest = warm(first);
  EXPECT_EQ(alone.items_here, alone.items_wanted);
  EXPECT_EQ(its.items_here, its.items_wanted);
  EXPECT_EQ(rest.items_here, rest.items_wanted);
  EXPECT_LT(rest.items_wanted, alone.items_wanted);
  EXPECT_NEAR(static_cast<double>(rest.bytes_wanted), static_cast<double>(its.bytes_wanted),
              3.0 * kLength);
  EXPECT_GT(its.items_wanted, 15u);
  EXPECT_LE(on_disk(), *settings.disk_limit.size);
}

TEST_F(ServerFaults, WhatWasFetchedIsPinnedWithoutASecondReadWhenItsShareGrows) {
  const TestData other(folder + "/other", kItems, kLength, 8);
  settings.disk_limit.size = Bytes(1'800'000);
  start();
  RawClient client(socket());
  std::vector<std::uint32_t> staged;
  {
    RawClient second(socket());
    ASSERT_TRUE(second.open(other));
    ASSERT_TRUE(client.open(data));
    EXPECT_EQ(warm(second).items_failed, 0u);
    ASSERT_LT(warm(client).items_here, kItems - 8);
    for (std::uint32_t i = 0; i < kItems && staged.size() < 2; ++i) {
      if (client.view->word(ItemId(i)).residency() == Residency::kAbsent) staged.push_back(i);
    }
    ASSERT_TRUE(client.fetch(staged));
    EXPECT_FALSE(client.view->word(ItemId(staged[0])).pinned());
  }
  const auto reads = [&] {
    const auto all = status(client)["datasets"];
    return std::max(all[0]["origin_reads"].get<int>(), all[1]["origin_reads"].get<int>());
  };
  const int before = reads();
  for (const std::uint32_t item : staged) {
    EXPECT_TRUE(eventually([&] { return client.view->word(ItemId(item)).pinned(); }))
        << client.status();
    EXPECT_TRUE(client.read(item, data.contents[item].size()) == data.contents[item]);
  }
  EXPECT_EQ(reads(), before);
}

TEST_F(ServerFaults, WhatWasInsertedBeforeItsManifestLeavesWhenRoomIsNeeded) {
  settings.disk_limit.size = Bytes(1'300'000);
  start();
  RawClient client(socket());
  for (std::uint32_t i = 0; i < 40; ++i) {
    const std::string& bytes = data.contents[i];
    ASSERT_TRUE(
        client.call<InsertReply>(Request::kInsert, InsertRequest{sha256(as_bytes(bytes)), bytes}));
  }
  const TestData other(folder + "/other", kItems, kLength, 8);
  ASSERT_TRUE(client.open(other));
  const WarmReply reply = warm(client);
  EXPECT_EQ(reply.items_here, reply.items_wanted);
  EXPECT_GT(reply.items_wanted, 30u);
  EXPECT_LE(on_disk(), *settings.disk_limit.size);
}

TEST_F(ServerFaults, MemoryLimitIsNamedWhereItIsReached) {
  settings.memory_limit = Bytes(1000);
  start();
  RawClient client(socket());
  const auto opened = client.open(data);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kNoSpace);
  EXPECT_NE(opened.error().message.find("memory_limit"), std::string::npos);
}

// Fetches of large items wait for one another rather than for the memory of the machine.
TEST_F(ServerFaults, WhatIsBeingFetchedIsBoundedByMemoryLimit) {
  const TestData large(folder + "/large", 6, 3'000'000);
  settings.memory_limit = Bytes(5'000'000);
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(large));
  auto fetched = client.fetch({0});
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->results[0].state, FetchResult::kFailed);
  EXPECT_NE(fetched->results[0].message.find("memory_limit"), std::string::npos);
  stop();
  settings.memory_limit = Bytes(8'000'000);
  start();
  RawClient again(socket());
  ASSERT_TRUE(again.open(large));
  std::jthread asking([&] { EXPECT_TRUE(again.fetch(numbers(0, 6))); });
  RawClient watcher(socket());
  std::uint64_t most = 0;
  EXPECT_TRUE(eventually([&] {
    const auto now = status(watcher);
    most = std::max(most, now["memory"]["used"].get<std::uint64_t>());
    return now["datasets"][0]["items_here"] == 6;
  }));
  EXPECT_LT(most, 4'000'000u);
}

// Neither an eviction nor a write that the disk is slow about stops the heartbeat or the answers.
TEST_F(ServerFaults, ADiskThatStallsHoldsUpOnlyWhoWritesToIt) {
  settings.disk_limit.size = Bytes(1'500'000);
  start();
  RawClient client(socket()), evicting(socket()), fetching(socket());
  ASSERT_TRUE(client.open(data));
  ASSERT_TRUE(fetching.open(data));
  ASSERT_TRUE(client.fetch(numbers(0, 30)));
  faulty.add({.op = io::FileOp::kTruncate, .path = "/segments/", .times = 3, .stall = 3000ms});
  faulty.add({.op = io::FileOp::kPwrite, .path = "/segments/", .times = 4, .stall = 3000ms});
  std::jthread fetch([&] { EXPECT_TRUE(fetching.fetch(numbers(30, 50))); });
  std::this_thread::sleep_for(100ms);  // some are being written
  std::jthread evict(
      [&] { EXPECT_TRUE(evicting.call<EvictReply>(Request::kEvict, EvictRequest{})); });
  Duration longest{}, oldest{};
  for (const Instant until = clock.now() + 2500ms; clock.now() < until;) {
    const Instant asked = clock.now();
    EXPECT_EQ(status(client)["sessions"], 3);
    longest = std::max(longest, clock.now() - asked);
    oldest = std::max(oldest, clock.now() - client.view->heartbeat());
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_GE(faulty.injected(), 2u);
  EXPECT_LT(longest, 200ms);
  EXPECT_LT(oldest, 400ms) << "clients leave after a second";
  faulty.clear();
}

TEST_F(ServerFaults, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  start();
  ::chmod(folder.c_str(), 0755);
  ::chmod(socket().c_str(), 0666);
  std::jthread([&] {
    // The system call, not the library's: it changes this thread alone.
    ASSERT_EQ(::syscall(SYS_setresuid, -1, 65534, -1), 0);
    RawClient client(socket());
    ASSERT_FALSE(client.hello);
    EXPECT_EQ(client.hello.error().code, Code::kDenied) << client.hello.error().message;
  }).join();
  RawClient client(socket());
  EXPECT_TRUE(client.hello);
}

TEST_F(ServerFaults, AStopDoesNotWaitForAnOriginThatStalls) {
  io::testing::ScriptedHttp server([](const io::testing::ScriptedRequest&) {
    return io::testing::ScriptedReply{.delay = std::chrono::milliseconds(4000)};
  });
  const TestData stalling(folder + "/stalling", kItems, kLength, 7, server.url());
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(stalling));
  std::jthread waiting([&] { static_cast<void>(client.fetch(numbers(0, 20))); });
  RawClient watcher(socket());
  EXPECT_TRUE(eventually([&] { return status(watcher)["fetches"]["running"] > 0; }));
  const Instant before = clock.now();
  stop();
  EXPECT_LT(clock.now() - before, std::chrono::seconds(2));
}

// Of one core; measured at 0.2 %.
TEST_F(ServerFaults, TheDaemonRestsWhileItsClientsOnlyHit) {
  constexpr std::uint32_t kMany = 6000;
  const TestData many(folder + "/many", kMany, 100);
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(many));
  ASSERT_EQ(warm(client).items_here, kMany);
  auto board = client.join(1, kMany);
  ASSERT_TRUE(board);
  const std::vector<std::uint64_t> all((kMany + 63) / 64, ~std::uint64_t{0}), none(all.size(), 0);
  board->begin(BoardEpoch{.epoch = 0, .order_seed = 5}, all, none);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto used = [] {  // by all threads but this one
    timespec all_threads{}, mine{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all_threads);
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mine);
    return static_cast<double>(all_threads.tv_sec - mine.tv_sec) +
           1e-9 * static_cast<double>(all_threads.tv_nsec - mine.tv_nsec);
  };
  const double before = used();
  for (std::uint32_t i = 0; i < 1500; ++i) {
    board->take(ItemId(i));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(used() - before, 0.05);
}

TEST_F(ServerFaults, ACacheWithinItsSourceIsRefused) {
  start();
  RawClient client(socket());
  OpenRequest request;
  request.root = data.root;
  request.origin.url = "file://" + folder + "/";
  const io::Fd manifest = data.descriptor();
  const auto opened = client.call<OpenReply>(Request::kOpen, request, {manifest.get()});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kInvalid);
  EXPECT_NE(opened.error().message.find("cache_dir"), std::string::npos);
}

// A disk of its own that others can fill.
class CrowdedDisk : public ServerFaults {
 protected:
  ~CrowdedDisk() override {
    stop();
    ::umount2(disk().c_str(), MNT_DETACH);
  }
  std::string disk() const { return folder + "/disk"; }
  std::string cache() const override { return disk() + "/cache"; }
};

TEST_F(CrowdedDisk, TheCacheShrinksForOthersAndGrowsAgain) {
  std::filesystem::create_directories(disk());
  if (::mount("quiver", disk().c_str(), "tmpfs", 0, "size=4m") != 0) {
    GTEST_SKIP() << "a file system cannot be mounted here";
  }
  settings.disk_limit.size = Bytes(2'000'000);
  settings.disk_floor = 0.1;
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  ASSERT_EQ(warm(client).items_here, kItems);
  std::ofstream(disk() + "/ballast") << std::string(3'200'000 - 400'000, 'x');
  const auto available = [&] { return files.space(disk())->available; };
  EXPECT_TRUE(eventually([&] { return available() >= Bytes(400'000); }));
  EXPECT_TRUE(eventually([&] { return status(client)["state"] == "degraded"; }));
  for (std::uint32_t i = 0; i < kItems; ++i) {
    const std::string bytes = client.read(i, data.contents[i].size());
    EXPECT_TRUE(bytes.empty() || bytes == data.contents[i]);
  }
  std::filesystem::remove(disk() + "/ballast");
  EXPECT_TRUE(eventually([&] { return status(client)["state"] == "ok"; }));
  EXPECT_EQ(warm(client).items_here, kItems);
}

}  // namespace
}  // namespace quiver::cache
