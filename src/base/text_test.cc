#include "base/text.h"

#include <gtest/gtest.h>

#include <array>

namespace quiver {
namespace {

TEST(ParseBytes, TakesSizesAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("20GB").value(), Bytes(20'000'000'000));
  EXPECT_EQ(parse_bytes(" 1.5 GiB ").value(), Bytes(3ull << 29));
  EXPECT_EQ(parse_bytes("4096").value(), Bytes(4096));
  EXPECT_EQ(parse_bytes("64k").value(), Bytes(64'000));
  for (auto bad : {"", "GB", "-1", "12 apples", "1e30GB", "nan"})
    EXPECT_FALSE(parse_bytes(bad)) << bad;
}

TEST(FormatBytes, KeepsThreeDigits) {
  EXPECT_EQ(format_bytes(Bytes(0)), "0 B");
  EXPECT_EQ(format_bytes(Bytes(999)), "999 B");
  EXPECT_EQ(format_bytes(Bytes(1234)), "1.23 kB");
  EXPECT_EQ(format_bytes(Bytes(41'000'000)), "41.0 MB");
}

TEST(NearestName, SuggestsOnlyWhatIsNear) {
  std::array<std::string_view, 3> names{"cache_dir", "disk_limit", "memory_limit"};
  EXPECT_EQ(nearest_name("disk_limt", names), "disk_limit");
  EXPECT_EQ(nearest_name("zebra", names), "");
}

}  // namespace
}  // namespace quiver
