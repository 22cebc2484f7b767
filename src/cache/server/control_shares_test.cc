// How the cache divides between datasets that jobs read at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "cache/server/testing/daemon_fixture.h"

namespace quiver::cache {
namespace {

using testing::DaemonTest;
using testing::RawClient;
using testing::TestData;

constexpr std::uint32_t kItems = 100;
constexpr std::size_t kLength = 20'000;

class Shares : public DaemonTest {
 protected:
  Shares() : a(folder + "/a", kItems, kLength, 7), b(folder + "/b", kItems, kLength, 8) {
    settings.disk_limit.size = Bytes(3'000'000);
    settings.window.size = Bytes(200'000);
  }
  nlohmann::json status_of(RawClient& client, const std::string& id) {
    const auto status = nlohmann::json::parse(client.status());
    for (const auto& dataset : status["datasets"]) {
      if (dataset["id"] == id) return dataset;
    }
    return nlohmann::json::object();
  }
  std::uint64_t share_of(RawClient& client, const std::string& id) {
    return status_of(client, id).value("share", std::uint64_t{0});
  }
  TestData a, b;
};

TEST_F(Shares, AreEqualWhileNothingIsKnownAndFollowWhoComesAndGoes) {
  start();
  RawClient first(socket());
  const auto opened = first.open(a);
  ASSERT_TRUE(opened);
  const std::uint64_t alone = share_of(first, opened->public_id);
  EXPECT_GT(alone, kItems * kLength);
  {
    RawClient second(socket());
    const auto other = second.open(b);
    ASSERT_TRUE(other);
    const std::uint64_t mine = share_of(first, opened->public_id);
    EXPECT_LT(mine, alone);
    EXPECT_NEAR(static_cast<double>(share_of(first, other->public_id)), static_cast<double>(mine),
                10);
  }
  EXPECT_TRUE(eventually([&] { return share_of(first, opened->public_id) == alone; }));
}

TEST_F(Shares, AnotherSessionOfADatasetMovesNothing) {
  start();
  RawClient first(socket()), second(socket());
  const auto opened = first.open(a);
  ASSERT_TRUE(opened && second.open(b));
  const std::uint64_t before = share_of(first, opened->public_id);
  RawClient worker(socket());
  ASSERT_TRUE(worker.open(a));
  EXPECT_EQ(share_of(first, opened->public_id), before);
}

TEST_F(Shares, TheOperatorsLimitHolds) {
  settings.shares = {{public_id(a.root).substr(0, 8), 1, Bytes(500'000)}};
  start();
  RawClient first(socket()), second(socket());
  const auto opened = first.open(a);
  const auto other = second.open(b);
  ASSERT_TRUE(opened && other);
  EXPECT_EQ(share_of(first, opened->public_id), 500'000);
  EXPECT_GT(share_of(first, other->public_id), kItems * kLength);
}

// Asks for what is not here, all the time: the link is at full load.
class Reader {
 public:
  Reader(const std::string& socket, const TestData& data, std::uint8_t job) : client_(socket) {
    const auto opened = client_.open(data);
    if (!opened) return;
    id = opened->public_id;
    board = client_.join(job, kItems);
    thread_ = std::jthread([this](std::stop_token stop) {
      for (std::uint32_t i = 0; !stop.stop_requested(); ++i) {
        std::vector<std::uint32_t> items;
        for (std::uint32_t k = 0; k < 8; ++k) items.push_back((i * 8 + k) % kItems);
        static_cast<void>(client_.fetch(items, 500));
      }
    });
  }
  std::string id;
  Result<JobBoardWriter> board = error(Code::kUnreachable, "not joined");

 private:
  RawClient client_;
  std::jthread thread_;
};

TEST_F(Shares, TheCacheGoesWhereItSavesMostTime) {
  settings.rate_limit = Bytes(400'000);
  start();
  Reader fast(socket(), a, 1), slow(socket(), b, 2);
  ASSERT_TRUE(fast.board && slow.board);
  const std::vector<std::uint64_t> none(2), all{~std::uint64_t{0}, (std::uint64_t{1} << 36) - 1};
  for (auto* board : {&*fast.board, &*slow.board}) board->begin({}, none, all);
  fast.board->set_pace({.items_per_second = 100, .steps = 50, .error = 0.01}, 4);  // 2 MB/s
  slow.board->set_pace({.items_per_second = 1, .steps = 50, .error = 0.01}, 4);    // 20 kB/s
  RawClient watcher(socket());
  const auto all_of_it = [&] { return share_of(watcher, fast.id) > kItems * kLength; };
  EXPECT_TRUE(eventually(all_of_it) || eventually(all_of_it));
  EXPECT_GT(share_of(watcher, slow.id), 100'000u);  // its window
  EXPECT_TRUE(eventually([&] {
    return status_of(watcher, slow.id)["share_reason"] ==
           "bound by its own compute at 20.0 kB/s: more cache would change nothing";
  })) << status_of(watcher, slow.id)["share_reason"];
  slow.board->set_pace({.items_per_second = 100, .steps = 50, .error = 0.01}, 4);
  fast.board->set_pace({.items_per_second = 1, .steps = 50, .error = 0.01}, 4);
  const auto the_other = [&] { return share_of(watcher, slow.id) > kItems * kLength; };
  EXPECT_TRUE(eventually(the_other)) << "within ten seconds";
}

// Takes what is staged for it as soon as it is here.
class Rider {
 public:
  Rider(const std::string& socket, const TestData& data, std::uint8_t job) : client_(socket) {
    const auto opened = client_.open(data);
    if (!opened) return;
    id = opened->public_id;
    board_ = client_.join(job, kItems);
    if (!board_) return;
    BoardEpoch epoch;
    epoch.order_seed = job;
    epoch.part = kItems;
    board_->begin(epoch, std::vector<std::uint64_t>(2), std::vector<std::uint64_t>(2));
    thread_ = std::jthread([this](std::stop_token stop) {
      for (std::uint64_t place = 0; !stop.stop_requested();) {
        const auto item = client_.view->ordered(place);
        if (item && client_.view->word(*item).residency() == Residency::kHere) {
          board_->take(*item);
          ++place;
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
    });
  }
  std::string id;

 private:
  RawClient client_;
  Result<JobBoardWriter> board_ = error(Code::kUnreachable, "not joined");
  std::jthread thread_;
};

TEST_F(Shares, TheLinkIsSharedEvenlyByDatasetsThatWantMoreThanItGives) {
  settings.rate_limit = Bytes(400'000);
  start();
  RawClient watcher(socket());
  Rider first(socket(), a, 1), second(socket(), b, 2);
  const auto read = [&](const std::string& id) {
    return status_of(watcher, id).value("origin_bytes", 0.0);
  };
  ASSERT_TRUE(eventually([&] { return read(first.id) + read(second.id) > 80 * kLength; }));
  EXPECT_GT(read(first.id), 30.0 * kLength);
  EXPECT_GT(read(second.id), 30.0 * kLength);
}

}  // namespace
}  // namespace quiver::cache
