#include <gtest/gtest.h>

#include "cache/server/requests.h"

namespace quiver::cache {
namespace {

WarmReply ended(std::uint64_t wanted, std::uint64_t here, std::uint64_t failed,
                const std::string& first_error = "") {
  WarmReply reply;
  reply.items = reply.items_wanted = wanted;
  reply.items_here = here;
  reply.items_failed = failed;
  reply.first_error = first_error;
  count_missing(reply);
  return reply;
}

TEST(RequestAdmin, WarmingThatEndsShortCountsAllThatIsMissing) {
  const WarmReply some = ended(100, 90, 3, "denied");
  EXPECT_EQ(some.items_failed, 10u);
  EXPECT_EQ(some.first_error, "denied");
  const WarmReply unsaid = ended(100, 90, 0);
  EXPECT_EQ(unsaid.items_failed, 10u);
  EXPECT_NE(unsaid.first_error.find("raise disk_limit"), std::string::npos);
}

TEST(RequestAdmin, WarmingThatEndsWellIsLeftAlone) {
  EXPECT_EQ(ended(100, 100, 0).items_failed, 0u);
  EXPECT_EQ(ended(100, 100, 0).first_error, "");
  EXPECT_EQ(ended(100, 95, 5, "denied").items_failed, 5u);
  EXPECT_EQ(ended(100, 110, 0).items_failed, 0u);  // the share has shrunk meanwhile
}

}  // namespace
}  // namespace quiver::cache
