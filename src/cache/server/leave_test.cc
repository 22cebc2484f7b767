// A rank that ends before its session does.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cache/policy/staging.h"
#include "cache/server/testing/daemon_fixture.h"

namespace quiver::cache {
namespace {

using testing::DaemonTest;
using testing::RawClient;
using testing::TestData;

constexpr std::uint32_t kItems = 12;

class Leave : public DaemonTest {
 protected:
  Leave() : data(folder + "/data", kItems, 1000) {}

  static Status leave(RawClient& client, std::uint8_t job, std::uint32_t rank = 0,
                      std::uint32_t dataset = 0) {
    LeaveRequest request{dataset, {}, rank};
    request.job[0] = job;
    const auto left = client.call<std::monostate>(Request::kLeave, request);
    return left ? Status() : Status(left.error());
  }
  static std::size_t jobs(RawClient& client) {
    return nlohmann::json::parse(client.status())["datasets"][0]["jobs"].size();
  }

  TestData data;
};

TEST_F(Leave, AsManyJobsAsOneLikesOneAfterAnother) {
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  for (std::uint32_t i = 1; i <= StagingPlan::kMaxJobs + 10; ++i) {
    const auto job = static_cast<std::uint8_t>(i);
    ASSERT_TRUE(client.join(job, kItems)) << i;
    EXPECT_EQ(jobs(client), 1u);
    ASSERT_TRUE(leave(client, job));
    EXPECT_EQ(jobs(client), 0u);
  }
  for (std::uint32_t i = 1; i <= StagingPlan::kMaxJobs; ++i) {
    ASSERT_TRUE(client.join(static_cast<std::uint8_t>(i), kItems));
  }
  EXPECT_EQ(client.join(100, kItems).error().code, Code::kNoSpace);
}

TEST_F(Leave, WhatIsNotThereOrAnothersIsLeftAlone) {
  start();
  RawClient client(socket()), other(socket());
  ASSERT_TRUE(client.open(data) && other.open(data));
  ASSERT_TRUE(client.join(1, kItems));
  EXPECT_TRUE(leave(other, 1));
  EXPECT_TRUE(leave(client, 2));
  EXPECT_TRUE(leave(client, 1, 7));
  EXPECT_TRUE(leave(client, 1, 0, 9));
  EXPECT_EQ(jobs(client), 1u);
  EXPECT_TRUE(leave(client, 1));
  EXPECT_EQ(jobs(client), 0u);
  EXPECT_TRUE(leave(client, 1));
}

TEST_F(Leave, ASessionWhoseLeaveWasNotHeardMayJoinAgain) {
  start();
  RawClient client(socket()), other(socket());
  ASSERT_TRUE(client.open(data) && other.open(data));
  ASSERT_TRUE(client.join(1, kItems));
  EXPECT_TRUE(client.join(1, kItems));
  EXPECT_EQ(jobs(client), 1u);
  EXPECT_EQ(other.join(1, kItems).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace quiver::cache
