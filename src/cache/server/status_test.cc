// What the daemon says of itself: what jobs got and from whom, what was read twice, requests.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cache/server/testing/daemon_fixture.h"
#include "cache/store/segment_format.h"

namespace quiver::cache {
namespace {

using Json = nlohmann::json;
using testing::DaemonTest;
using testing::RawClient;
using testing::TestData;

constexpr std::uint32_t kItems = 12;
using Words = std::vector<std::uint64_t>;

class StatusTest : public DaemonTest {
 protected:
  StatusTest() : data(folder + "/data", kItems, 1000) { start(); }

  static Json dataset(RawClient& client) { return Json::parse(client.status())["datasets"][0]; }
  static Json job(RawClient& client, std::uint64_t number) {
    const Json jobs = dataset(client)["jobs"];
    for (const Json& each : jobs) {
      if (each["job"] == number) return each;
    }
    return Json::object();
  }
  static void take_all(JobBoardWriter& board) {
    for (std::uint32_t i = 0; i < kItems; ++i) board.take(ItemId(i));
  }

  TestData data;
};

TEST_F(StatusTest, SharedIsWhatAnotherJobsFetchBrought) {
  RawClient a(socket()), b(socket());
  ASSERT_TRUE(a.open(data) && b.open(data));
  auto first = a.join(1, kItems).value(), second = b.join(2, kItems).value();
  first.begin({.epoch = 0, .part = kItems}, Words{0}, Words{0});
  ASSERT_TRUE(eventually([&] { return dataset(a)["items_here"] == kItems; }));
  EXPECT_TRUE(job(a, 1)["leader"]);
  take_all(first);
  first.set_counters({.staged = 10, .missed = 2, .bytes = 12'000, .steps = 3});
  // What is taken just before an epoch ends counts as well.
  second.begin({.epoch = 0, .part = kItems}, Words{1}, Words{0});
  ASSERT_TRUE(eventually([&] { return job(a, 2)["to_take"] == kItems; }));
  take_all(second);
  second.set_counters({.pinned = 1, .staged = 11, .bytes = 12'000, .steps = 3});
  second.begin({.epoch = 1, .part = kItems}, Words{0xfff}, Words{0});
  ASSERT_TRUE(eventually([&] { return job(a, 2)["served"]["shared"] == 11; })) << job(a, 2).dump(2);
  EXPECT_EQ(job(a, 2)["served"]["own"], 0);
  EXPECT_EQ(job(a, 2)["served"]["pinned"], 1);
  EXPECT_EQ(job(a, 2)["taken"], 0);
  ASSERT_TRUE(eventually([&] { return job(a, 1)["taken"] == kItems; }));
  EXPECT_EQ(job(a, 1)["served"]["shared"], 0);
  EXPECT_EQ(job(a, 1)["served"]["own"], 12);
  EXPECT_EQ(job(a, 1)["served"]["missed"], 2);
}

TEST_F(StatusTest, AJobCannotSayThatMoreWasSharedThanItGot) {
  RawClient a(socket()), b(socket());
  ASSERT_TRUE(a.open(data) && b.open(data));
  auto first = a.join(1, kItems).value(), second = b.join(2, kItems).value();
  first.begin({.part = kItems}, Words{0}, Words{0});
  ASSERT_TRUE(eventually([&] { return dataset(a)["items_here"] == kItems; }));
  second.begin({.part = kItems}, Words{0}, Words{0xfff});  // claims what it never took
  second.set_counters({.direct = 5});
  ASSERT_TRUE(eventually([&] { return job(a, 2)["served"]["direct"] == 5; }));
  EXPECT_EQ(job(a, 2)["served"]["shared"], 0);
  EXPECT_EQ(job(a, 2)["served"]["own"], 0);
  EXPECT_EQ(job(a, 2)["served"]["items"], 5);
}

TEST_F(StatusTest, RatesAreOfTheLastSeconds) {
  RawClient a(socket());
  ASSERT_TRUE(a.open(data));
  auto board = a.join(1, kItems).value();
  board.begin({.part = kItems}, Words{0}, Words{0});
  board.set_pace({.items_per_second = 1500, .steps = 40, .error = 0.01}, 4);
  JobCounters counters;
  const auto recent = [&] { return job(a, 1)["recent"]; };
  ASSERT_TRUE(eventually([&] {
    counters.pinned += 10;
    counters.steps += 1;
    counters.waited_link_ns += 5'000'000;  // a quarter of the 20 ms between two looks
    board.set_counters(counters);
    return recent()["seconds"] > 3;
  }));
  EXPECT_GT(recent()["items_per_s"], 200);
  EXPECT_LT(recent()["items_per_s"], 510);
  EXPECT_EQ(recent()["items_per_s"], recent()["pinned_per_s"]);
  EXPECT_GT(recent()["waiting_link"], 0.1);
  EXPECT_LT(recent()["waiting_link"], 0.27);
  EXPECT_EQ(job(a, 1)["pace"]["items_per_s"], 1500);
}

TEST_F(StatusTest, WhatWasReadAgainAndWhy) {
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  ASSERT_TRUE(client.fetch({0, 1}));
  EXPECT_EQ(dataset(client)["read_again"]["no_room"], 0);
  ASSERT_TRUE(client.call<EvictReply>(Request::kEvict, EvictRequest{}));
  ASSERT_TRUE(client.fetch({0, 2}));
  EXPECT_EQ(dataset(client)["read_again"]["no_room"], 1000);
  // Its copy on the disk goes bad, and somebody finds out.
  const ViewWord word = client.view->word(ItemId(2));
  std::fstream file(cache() + "/segments/" + data_name(word.segment()),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(word.offset())) << "damaged" << std::flush;
  ASSERT_TRUE(file.good());
  const DamagedRequest damaged{0, 2, word.segment().value, word.offset()};
  ASSERT_TRUE(client.call<DamagedReply>(Request::kDamaged, damaged)->gone);
  ASSERT_TRUE(client.fetch({2}));
  const Json status = dataset(client);
  EXPECT_EQ(status["read_again"]["damaged"], 1002);
  std::uint64_t sum = 0;
  for (const Json& bytes : status["read_again"]) sum += bytes.get<std::uint64_t>();
  EXPECT_EQ(sum, 2002u);
  EXPECT_EQ(status["origin_bytes"], 1000 + 1001 + 1000 + 1002 + 1002);
}

TEST_F(StatusTest, AStrictJobThatDoesNotLeadReadsAgain) {
  RawClient a(socket()), b(socket());
  ASSERT_TRUE(a.open(data) && b.open(data));
  auto leader = a.join(1, kItems).value(), strict = b.join(2, kItems).value();
  leader.begin({.part = kItems}, Words{0}, Words{0});
  leader.set_pace({.items_per_second = 100, .steps = 12}, 4);
  strict.begin({.strict = true, .part = kItems}, Words{0}, Words{0});
  ASSERT_TRUE(eventually([&] {
    return dataset(a)["items_here"] == kItems && job(a, 2).value("strict", false) &&
           job(a, 1).value("leader", false);
  }));
  take_all(leader);  // and wants no more, but still leads
  ASSERT_TRUE(eventually([&] { return job(a, 1)["taken"] == kItems; }));
  ASSERT_TRUE(a.call<EvictReply>(Request::kEvict, EvictRequest{}));
  ASSERT_TRUE(b.fetch({3}));
  EXPECT_EQ(dataset(a)["read_again"]["strict"], 1003);
  EXPECT_EQ(dataset(a)["read_again"]["no_room"], 0);
}

TEST_F(StatusTest, CountsRequestsOfSessionsThatHaveEndedToo) {
  {
    RawClient client(socket());
    ASSERT_TRUE(client.open(data));
    ASSERT_TRUE(client.fetch({0, 1, 2}));
  }
  RawClient other(socket());
  ASSERT_TRUE(other.open(data));
  const Json status = Json::parse(other.status());
  EXPECT_TRUE(status["datasets"][0]["origin_requests"].contains("get"));
  EXPECT_EQ(status["disk"]["unusable"], 0);
  EXPECT_EQ(status["disk"]["leaving"], 0);
  EXPECT_EQ(status["memory"]["requests"], 0);
}

}  // namespace
}  // namespace quiver::cache
