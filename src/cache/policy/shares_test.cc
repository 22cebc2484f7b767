#include "cache/policy/shares.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace quiver::cache {
namespace {

ShareRequest live(std::uint64_t need) {
  return {.need = Bytes(need), .held = Bytes(0), .live = true};
}
ShareRequest idle(std::uint64_t held, std::uint64_t used) {
  return {.need = Bytes(held), .held = Bytes(held), .live = false, .last_used = used};
}

TEST(Shares, LiveDatasetsShareEquallyAndTheRestFlows) {
  EXPECT_EQ(divide_shares(Bytes(90), {live(1000), live(10), live(1000)}),
            (std::vector{Bytes(40), Bytes(10), Bytes(40)}));
  EXPECT_EQ(divide_shares(Bytes(90), {live(1000)}), std::vector{Bytes(90)});
}

TEST(Shares, DatasetsWithoutSessionsKeepWhatIsLeftMostRecentFirst) {
  EXPECT_EQ(divide_shares(Bytes(100), {live(60), idle(30, 1), idle(30, 2)}),
            (std::vector{Bytes(60), Bytes(10), Bytes(30)}));
  EXPECT_EQ(divide_shares(Bytes(100), {live(100), idle(30, 1)}),
            (std::vector{Bytes(100), Bytes(0)}));
}

TEST(Shares, NeverExceedTheBudgetNorAnyNeed) {
  EXPECT_TRUE(
      rc::check([](std::uint32_t budget, const std::vector<std::pair<std::uint32_t, bool>>& needs) {
        std::vector<ShareRequest> requests;
        for (const auto& [need, is_live] : needs) {
          requests.push_back({.need = Bytes(need), .held = Bytes(need), .live = is_live});
        }
        const auto shares = divide_shares(Bytes(budget), requests);
        Bytes sum, all;
        for (std::size_t i = 0; i < shares.size(); ++i) {
          RC_ASSERT(shares[i] <= requests[i].need);
          sum += shares[i];
          all += requests[i].need;
        }
        RC_ASSERT(sum == std::min(Bytes(budget), all));
      }));
}

}  // namespace
}  // namespace quiver::cache
