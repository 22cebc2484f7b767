#include "cache/server/server.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cache/sampler/item_set.h"
#include "cache/sampler/permutation.h"
#include "cache/server/testing/daemon_fixture.h"

namespace quiver::cache {
namespace {

using testing::DaemonTest;
using testing::RawClient;
using testing::TestData;

constexpr std::uint32_t kItems = 60;
constexpr std::size_t kLength = 20'000;

nlohmann::json dataset_of(RawClient& client) {
  return nlohmann::json::parse(client.status())["datasets"][0];
}

class Server : public DaemonTest {
 protected:
  Server() : data(folder + "/data", kItems, kLength) {}
  TestData data;
};

TEST_F(Server, FetchesWhatIsAskedForAndShowsIt) {
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.hello) << client.hello.error().message;
  const auto opened = client.open(data);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->items, kItems);
  EXPECT_EQ(client.view->word(ItemId(3)).residency(), Residency::kAbsent);
  const auto fetched = client.fetch({3, 4, 3});
  ASSERT_TRUE(fetched) << fetched.error().message;
  for (const auto& result : fetched->results)
    EXPECT_EQ(result.state, FetchResult::kHere) << result.message;
  EXPECT_TRUE(client.read(3, data.contents[3].size()) == data.contents[3]);
  EXPECT_TRUE(client.read(4, data.contents[4].size()) == data.contents[4]);
  EXPECT_EQ(client.view->checksum(ItemId(3)), checksum32(as_bytes(data.contents[3])));
  EXPECT_EQ(dataset_of(client)["origin_reads"], 2);
}

TEST_F(Server, TheHeartbeatMoves) {
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  const Instant first = client.view->heartbeat();
  EXPECT_TRUE(eventually([&] { return client.view->heartbeat() > first; }));
}

TEST_F(Server, SaysWhyAnItemDoesNotCome) {
  std::filesystem::remove(folder + "/data/item5");
  const std::string same = folder + "/data/item6";  // another content under the same version
  const auto version = std::filesystem::last_write_time(same);
  std::ofstream(same) << std::string(data.contents[6].size(), 'x');
  std::filesystem::last_write_time(same, version);
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  const auto fetched = client.fetch({5, 6, 7});
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->results[0].state, FetchResult::kFailed);
  EXPECT_EQ(fetched->results[0].code, static_cast<std::uint16_t>(Code::kNotFound));
  EXPECT_EQ(fetched->results[1].state, FetchResult::kFailed);
  EXPECT_EQ(fetched->results[1].code, static_cast<std::uint16_t>(Code::kCorrupt));
  EXPECT_EQ(fetched->results[2].state, FetchResult::kHere);
  EXPECT_TRUE(client.read(6, data.contents[6].size()).empty());
}

TEST_F(Server, TwoSessionsThatAskForTheSameItemCostOneRead) {
  start();
  std::vector<std::uint32_t> all(kItems);
  for (std::uint32_t i = 0; i < kItems; ++i) all[i] = i;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      RawClient client(socket());
      ASSERT_TRUE(client.open(data));
      const auto fetched = client.fetch(all);
      ASSERT_TRUE(fetched);
      for (const auto& result : fetched->results)
        EXPECT_EQ(result.state, FetchResult::kHere) << result.message;
    });
  }
  threads.clear();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  EXPECT_EQ(dataset_of(client)["origin_reads"], kItems);
}

TEST_F(Server, StagesWhatABoardWantsAndPinsWhatFits) {
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  auto board = client.join(1, kItems);
  ASSERT_TRUE(board) << board.error().message;
  BoardEpoch epoch;
  epoch.order_seed = 5;
  const std::vector<std::uint64_t> none(1), taken{std::uint64_t{1} << 9};
  board->begin(epoch, none, taken);
  EXPECT_TRUE(eventually([&] { return dataset_of(client)["items_here"] == kItems - 1; }));
  EXPECT_EQ(client.view->word(ItemId(9)).residency(), Residency::kAbsent);
  EXPECT_TRUE(client.view->word(ItemId(8)).pinned());
  const Permutation order(derive_key(5, 0, Purpose::kFetchOrder), kItems);
  std::uint32_t position = 0;
  for (std::uint64_t place = 0; place < kItems - 1; ++place, ++position) {
    if (order.at(position) == 9) ++position;
    EXPECT_EQ(client.view->ordered(place), ItemId(order.at(position)));
  }
  EXPECT_EQ(dataset_of(client)["jobs"][0]["leader"], true);
}

TEST_F(Server, ASecondRankOfTheSameNumberIsRefusedUntilTheFirstIsGone) {
  start();
  RawClient second(socket());
  {
    RawClient first(socket());
    ASSERT_TRUE(first.open(data));
    ASSERT_TRUE(first.join(1, kItems));
    ASSERT_TRUE(second.open(data));
    const auto refused = second.join(1, kItems);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
  }
  EXPECT_TRUE(eventually([&] { return second.join(1, kItems).has_value(); }));
}

// A budget of a sixth of the data: everything can be read, the disk is never above the limit.
TEST_F(Server, KeepsItsBudgetWhileAReaderLoops) {
  settings.disk_limit.size = Bytes(600'000);
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  std::uint32_t right = 0, missed = 0;
  Bytes most;
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < kItems; ++i) {
      const auto fetched = client.fetch({i});
      ASSERT_TRUE(fetched) << fetched.error().message;
      EXPECT_EQ(fetched->results[0].state, FetchResult::kHere) << fetched->results[0].message;
      const std::string bytes = client.read(i, data.contents[i].size());
      right += bytes == data.contents[i];
      missed += bytes.empty();
      most = std::max(most, on_disk());
    }
  }
  EXPECT_EQ(right + missed, 3 * kItems);
  EXPECT_LE(missed, 3u);
  EXPECT_LE(most, *settings.disk_limit.size);
  EXPECT_GT(dataset_of(client)["pinned_items"], 0);
  EXPECT_GT(dataset_of(client)["evicted_items"], 50);
}

// Three epochs of a job through a cache of less than half the data, all by the board and the ring.
TEST_F(Server, AJobRunsThroughASmallCacheAtOneReadAnItem) {
  settings.disk_limit.size = Bytes(1'000'000);
  settings.window.size = Bytes(250'000);
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  auto board = client.join(1, kItems);
  ASSERT_TRUE(board) << board.error().message;
  std::uint64_t seen = 0, reads_before = 0;
  for (std::uint64_t e = 0; e < 3; ++e) {
    ItemSet settled(kItems), taken(kItems);
    for (std::uint32_t i = 0; i < kItems; ++i) {
      const ViewWord word = client.view->word(ItemId(i));
      if (word.residency() == Residency::kHere && word.pinned()) settled.insert(ItemId(i));
    }
    std::this_thread::sleep_for(
        std::chrono::milliseconds(250));  // counters come with the heartbeat
    reads_before = client.view->counters().origin_reads;
    BoardEpoch epoch;
    epoch.epoch = e;
    epoch.order_seed = 9;
    board->begin(epoch, settled.words(), taken.words());
    const auto take = [&](ItemId id) {
      std::string bytes;
      EXPECT_TRUE(eventually([&] {
        bytes = client.read(id.value, data.contents[id.value].size());
        return !bytes.empty();
      })) << "item "
          << id.value << " in epoch " << e;
      EXPECT_TRUE(bytes == data.contents[id.value]);
      board->take(id);
      taken.insert(id);
      EXPECT_LE(on_disk(), *settings.disk_limit.size);
    };
    settled.for_each(take);
    for (; taken.count() < kItems; ++seen) {
      std::optional<ItemId> id;
      ASSERT_TRUE(eventually([&] { return (id = client.view->ordered(seen)).has_value(); }));
      if (!taken.contains(*id)) take(*id);
    }
    if (e == 0) continue;
    EXPECT_GT(settled.count(), 10u);
    // What was fetched last in the epoch before may still lie in its open segment when its turn
    // comes: one read less.
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    const std::uint64_t reads = client.view->counters().origin_reads - reads_before;
    EXPECT_LE(reads, kItems - settled.count());
    EXPECT_GE(reads + 1, kItems - settled.count());
  }
  EXPECT_EQ(client.view->counters().origin_errors, 0u);
}

TEST_F(Server, AnItemAboveTheBudgetNamesTheLimit) {
  settings.disk_limit.size = Bytes(40'000);
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  const auto fetched = client.fetch({0});
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->results[0].state, FetchResult::kFailed);
  EXPECT_EQ(fetched->results[0].code, static_cast<std::uint16_t>(Code::kNoSpace));
  EXPECT_NE(fetched->results[0].message.find("disk_limit"), std::string::npos);
}

TEST_F(Server, WhatWasThereIsFoundAfterARestart) {
  start();
  {
    RawClient client(socket());
    ASSERT_TRUE(client.open(data));
    ASSERT_TRUE(client.fetch({1, 2, 3}));
  }
  stop();
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  EXPECT_TRUE(client.read(2, data.contents[2].size()) == data.contents[2]);
  EXPECT_EQ(dataset_of(client)["items_here"], 3);
  EXPECT_TRUE(client.view->word(ItemId(2)).pinned());
}

TEST_F(Server, InsertedContentIsFoundWhenItsManifestOpens) {
  start();
  RawClient client(socket());
  const auto wrong =
      client.call<InsertReply>(Request::kInsert, InsertRequest{sha256(as_bytes("a")), "b"});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::kCorrupt);
  const auto& bytes = data.contents[11];
  const auto kept =
      client.call<InsertReply>(Request::kInsert, InsertRequest{sha256(as_bytes(bytes)), bytes});
  ASSERT_TRUE(kept);
  EXPECT_TRUE(kept->kept);
  ASSERT_TRUE(client.open(data));
  EXPECT_TRUE(client.read(11, bytes.size()) == bytes);
  EXPECT_TRUE(client.view->word(ItemId(11)).pinned());
}

TEST_F(Server, WarmFillsTheShareAndEvictEmptiesIt) {
  start();
  RawClient client(socket());
  const auto opened = client.open(data);
  ASSERT_TRUE(opened);
  const auto warmed = client.call<WarmReply>(Request::kWarm, WarmRequest{0, 10'000});
  ASSERT_TRUE(warmed);
  EXPECT_EQ(warmed->items_here, kItems);
  EXPECT_EQ(warmed->bytes_here, warmed->bytes_wanted);
  const auto evicted = client.call<EvictReply>(Request::kEvict, EvictRequest{opened->public_id});
  ASSERT_TRUE(evicted);
  EXPECT_GE(evicted->bytes, kItems * kLength);
  EXPECT_EQ(client.view->word(ItemId(1)).residency(), Residency::kAbsent);
  ASSERT_TRUE(client.fetch({1}));
  EXPECT_TRUE(client.read(1, data.contents[1].size()) == data.contents[1]);
}

TEST_F(Server, AnotherManifestOrProtocolIsRefused) {
  start();
  RawClient client(socket());
  OpenRequest request;
  request.root = sha256(as_bytes("another"));
  request.origin.url = data.url;
  const io::Fd manifest = data.descriptor();
  const auto opened = client.call<OpenReply>(Request::kOpen, request, {manifest.get()});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kInvalid);
  EXPECT_FALSE(client.fetch({0}));

  auto raw = rpc::Connection::connect(socket(), RawClient::soon());
  ASSERT_TRUE(raw);
  const auto hello = (*raw)->call(static_cast<std::uint16_t>(Request::kHello),
                                  encode(HelloRequest{99, "future", {}}), {}, RawClient::soon());
  ASSERT_FALSE(hello);
  EXPECT_EQ(hello.error().code, Code::kVersion);
}

TEST_F(Server, SaysNothingThatIsSecret) {
  start();
  RawClient client(socket());
  const auto opened = client.open(data);
  ASSERT_TRUE(opened);
  ASSERT_TRUE(client.fetch({0}));
  const std::string status = client.status();
  EXPECT_NE(status.find(opened->public_id), std::string::npos);
  EXPECT_EQ(status.find(data.root.hex()), std::string::npos);
  EXPECT_EQ(status.find(sha256(as_bytes(data.contents[0])).hex()), std::string::npos);
  EXPECT_EQ(status.find(data.url), std::string::npos);
}

TEST_F(Server, StopsWhenItIsAskedAndWhenItIsIdle) {
  start();
  {
    RawClient client(socket());
    EXPECT_TRUE(client.call<std::monostate>(Request::kStop, FetchRequest{}));
  }
  thread.join();
  daemon.reset();
  settings.idle_timeout = std::chrono::seconds(0);
  start();
  thread.join();  // nobody came
}

TEST_F(Server, ADirectoryServesOneDaemon) {
  start();
  DaemonOptions options;
  options.settings = settings;
  options.cache_directory = cache();
  options.socket_path = folder + "/other";
  const auto second = Daemon::start(options, {files, *http, clock, sink});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace quiver::cache
