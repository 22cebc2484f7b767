#include "cache/policy/share_reason.h"

#include <gtest/gtest.h>

namespace quiver::cache {
namespace {

constexpr std::uint64_t kMB = 1'000'000;

std::string reason(const Demands& demands, std::uint64_t megabytes) {
  const Division division{Bytes(megabytes * kMB)};
  return share_reason(demands, division, forecast(demands, division), 0);
}

Demands one(double rate, double link) {
  Demands demands;
  demands.budget = Bytes(500 * kMB);
  demands.datasets = {{.need = Bytes(400 * kMB)}};
  demands.jobs = {{.dataset = 0, .rate = rate * kMB}};
  demands.links = {link * kMB};
  return demands;
}

TEST(ShareReason, SaysWhatBindsTheJobs) {
  EXPECT_EQ(reason(one(5, 20), 100),
            "bound by its own compute at 5.00 MB/s: more cache would change nothing");
  EXPECT_EQ(reason(one(40, 20), 100),
            "bound by the link: fed at 26.7 MB/s where it could compute 40.0 MB/s; 100 MB more "
            "cache would feed it in full");
  EXPECT_EQ(reason(one(40, 20), 400), "all of it fits");
}

TEST(ShareReason, SaysWhatIsNotKnown) {
  EXPECT_EQ(reason(one(0, 20), 100), "its compute rate is not known yet: it has an equal part");
  EXPECT_EQ(reason(one(40, 0), 100), "what its link gives is not known yet: it has an equal part");
}

TEST(ShareReason, SaysThatNobodyReadsItAndThatItIsAtItsLimit) {
  Demands demands = one(40, 20);
  demands.jobs.clear();
  EXPECT_EQ(reason(demands, 100), "no job reads it");
  demands = one(40, 20);
  demands.datasets[0].limit = Bytes(100 * kMB);
  EXPECT_EQ(reason(demands, 100), "at its limit of 100 MB");
}

}  // namespace
}  // namespace quiver::cache
