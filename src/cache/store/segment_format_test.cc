#include "cache/store/segment_format.h"

#include <gtest/gtest.h>

#include "io/file.h"

namespace quiver::cache {
namespace {

std::string golden(const char* name) {
  io::RealFiles files;
  const auto text =
      io::read_file(files, std::string(QUIVER_SOURCE_DIR "/tests/vectors/") + name, 64_KiB);
  return text ? *text : text.error().message;
}

// The worked example of docs/formats/segments.md.
TEST(SegmentFormat, GoldenIndex) {
  const SegmentId id(42);
  const Lane lane{"0123456789abcdef", true, 0xba};
  const IndexRow row{sha256(as_bytes("abc")), 0, 3, checksum32(as_bytes("abc"))};
  std::string bytes(as_text(encode_header(id, lane)));
  bytes += as_text(encode_row(row));
  EXPECT_EQ(bytes, golden("segment_index_v1.bin"));
  EXPECT_EQ(decode_header(as_bytes(bytes).first(kRowBytes), id).value(), lane);
  EXPECT_EQ(decode_row(as_bytes(bytes).subspan(kRowBytes)).value(), row);
  EXPECT_EQ(data_name(id), "00000042.seg");
}

TEST(SegmentFormat, GoldenSmallFiles) {
  const BootState state{"6f1f64f0", true, 260, 17};
  EXPECT_EQ(encode_boot(state), golden("cache_boot_v1.txt"));
  EXPECT_EQ(decode_boot(golden("cache_boot_v1.txt")).value(), state);
  EXPECT_EQ(encode_marker(4711), golden("cache_marker_v1.txt"));
  EXPECT_EQ(decode_marker(golden("cache_marker_v1.txt"))->pid, 4711u);
}

TEST(SegmentFormat, EveryFlippedBitIsSeen) {
  const RowBytes row = encode_row({sha256(as_bytes("abc")), 5, 3, 9});
  const RowBytes header = encode_header(SegmentId(1), {"g", false, 0});
  for (std::size_t bit = 0; bit < kRowBytes * 8; ++bit) {
    RowBytes bad_row = row, bad_header = header;
    bad_row[bit / 8] ^= std::byte(1 << bit % 8);
    bad_header[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_FALSE(decode_row(bad_row));
    EXPECT_FALSE(decode_header(bad_header, SegmentId(1)));
  }
  EXPECT_FALSE(decode_row(RowBytes{}));
  EXPECT_FALSE(decode_header(header, SegmentId(2)));
  EXPECT_FALSE(decode_row(ByteSpan(row).first(55)));
  EXPECT_FALSE(decode_row(encode_row({{}, kSegmentBytes - 1, 2, 0})));
}

TEST(SegmentFormat, OnlyItsOwnNames) {
  EXPECT_TRUE(parse_name("33554431.idx")->index);
  for (const char* name : {"33554432.idx", "1.idx", "00000001.tmp", "0000000a.seg", "00000001seg.",
                           "", "000000001.seg", "-0000001.seg"}) {
    EXPECT_FALSE(parse_name(name)) << name;
  }
}

TEST(SegmentFormat, DamagedBootFilesAreErrors) {
  const std::string boot = encode_boot({"id", false, 1, 0});
  for (std::size_t i = 0; i < boot.size(); ++i) {
    EXPECT_FALSE(decode_boot(boot.substr(0, i)));
    std::string bad = boot;
    bad[i] ^= 1;
    EXPECT_FALSE(decode_boot(bad)) << i;
  }
}

}  // namespace
}  // namespace quiver::cache
