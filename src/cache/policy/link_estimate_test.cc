#include "cache/policy/link_estimate.h"

#include <gtest/gtest.h>

#include <random>

namespace quiver::cache {
namespace {

struct Link {
  LinkEstimate estimate;
  std::mt19937_64 random{3};
  // Seconds at full load, each off by up to a tenth.
  void full(double rate, int seconds) {
    for (int k = 0; k < seconds; ++k) {
      const double off = std::uniform_real_distribution<>(0.9, 1.1)(random);
      estimate.second(Bytes(static_cast<std::uint64_t>(rate * off)), true);
    }
  }
};

TEST(LinkEstimate, IsNotKnownBeforeAFewSecondsAtFullLoad) {
  LinkEstimate estimate;
  for (int k = 0; k < 100; ++k) estimate.second(Bytes(1'000'000), false);
  EXPECT_EQ(estimate.rate(), 0);
  estimate.second(Bytes(20'000'000), true);
  estimate.second(Bytes(20'000'000), true);
  EXPECT_EQ(estimate.rate(), 0);
  estimate.second(Bytes(20'000'000), true);
  EXPECT_EQ(estimate.rate(), 20e6);
}

TEST(LinkEstimate, ABurstAndSecondsThatWereNotFullDoNotMoveIt) {
  Link link;
  link.full(20e6, 30);
  link.estimate.second(Bytes(300'000'000), true);
  link.estimate.second(Bytes(200'000'000), true);
  for (int k = 0; k < 6; ++k) link.estimate.second(Bytes(1'000'000), true);
  EXPECT_NEAR(link.estimate.rate(), 20e6, 2.2e6);
}

TEST(LinkEstimate, StaysWhileTheLinkIsNotAtFullLoad) {
  Link link;
  link.full(20e6, 30);
  for (int k = 0; k < 1000; ++k) link.estimate.second(Bytes(4'000'000), false);
  EXPECT_NEAR(link.estimate.rate(), 20e6, 2e6);
}

TEST(LinkEstimate, MoreThanWasThoughtCountsWithoutFullLoadToo) {
  Link link;
  link.full(20e6, 30);
  for (int k = 0; k < 5; ++k) link.estimate.second(Bytes(40'000'000), false);
  EXPECT_EQ(link.estimate.rate(), 40e6);
}

TEST(LinkEstimate, FollowsALinkThatChanges) {
  Link link;
  link.full(20e6, 30);
  link.full(40e6, 6);
  EXPECT_NEAR(link.estimate.rate(), 40e6, 4e6);
  link.full(40e6, 30);
  link.full(10e6, 13);
  EXPECT_NEAR(link.estimate.rate(), 10e6, 1e6);
}

TEST(LinkEstimate, ALinkIsAServer) {
  EXPECT_EQ(link_of("https://example.org:8080/a/b"), "https://example.org:8080");
  EXPECT_EQ(link_of("https://example.org"), "https://example.org");
  EXPECT_EQ(link_of("s3://one/a"), link_of("s3://two/b"));
  EXPECT_EQ(link_of("/data/a"), link_of("file:///data/b"));
}

}  // namespace
}  // namespace quiver::cache
