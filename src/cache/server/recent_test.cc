#include "cache/server/recent.h"

#include <gtest/gtest.h>

namespace quiver::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const auto kItself = [](std::uint64_t value) { return value; };

TEST(Recent, HasNoRateBeforeTwoValues) {
  Recent<std::uint64_t> recent;
  EXPECT_EQ(recent.per_second(kItself), 0);
  recent.add(Instant{} + seconds(1), 7);
  EXPECT_EQ(recent.per_second(kItself), 0);
  EXPECT_EQ(recent.seconds(), 0);
}

TEST(Recent, TheRateIsOfTheLastSeconds) {
  Recent<std::uint64_t> recent;
  std::uint64_t value = 0;
  for (int i = 0; i < 20; ++i) recent.add(Instant{} + seconds(i), value += 1000);
  for (int i = 20; i < 26; ++i) recent.add(Instant{} + seconds(i), value += 10);
  EXPECT_EQ(recent.seconds(), 5);
  EXPECT_EQ(recent.growth(kItself), 50);
  EXPECT_EQ(recent.per_second(kItself), 10);
}

TEST(Recent, AGapIsBridged) {
  Recent<std::uint64_t> recent;
  recent.add(Instant{} + seconds(1), 100);
  recent.add(Instant{} + seconds(61), 160);
  EXPECT_EQ(recent.per_second(kItself), 1);
  recent.add(Instant{} + seconds(61) + milliseconds(500), 160);
  EXPECT_GT(recent.seconds(), 0);
}

}  // namespace
}  // namespace quiver::cache
