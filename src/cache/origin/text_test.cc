#include "cache/origin/text.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace quiver::cache {
namespace {

TEST(OriginText, EncodingRoundTripsAnyBytes) {
  EXPECT_TRUE(rc::check([](const std::string& raw) {
    RC_ASSERT(decode_percent(encode_path(raw)) == raw);
    RC_ASSERT(decode_percent(encode_component(raw)) == raw);
    RC_ASSERT(decode_listing(encode_component(raw)) == raw);
    for (const char c : encode_component(raw))
      RC_ASSERT(c > ' ' && c < 127 && c != '/' && c != '+');
  }));
}

TEST(OriginText, EncodesAsSigV4Does) {
  EXPECT_EQ(encode_path("a b+c/ü~-._"), "a%20b%2Bc/%C3%BC~-._");
  EXPECT_EQ(encode_query({{"prefix", "a/b"}, {"list-type", "2"}, {"encoding-type", "url"}}),
            "encoding-type=url&list-type=2&prefix=a%2Fb");
}

TEST(OriginText, DecodesListingsOnce) {
  EXPECT_EQ(decode_listing("a+b%2Bc%252B"), "a b+c%2B");
  EXPECT_EQ(decode_percent("a+b"), "a+b");
  for (const char* bad : {"%", "%4", "%zz", "a%4"}) EXPECT_FALSE(decode_listing(bad)) << bad;
}

TEST(OriginText, ReadsDates) {
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777'000'000'000);
  EXPECT_EQ(parse_iso_date("1994-11-06T08:49:37.987Z"), 784111777'000'000'000);
  EXPECT_EQ(parse_iso_date("1994-11-06T08:49:37Z"), 784111777'000'000'000);
  EXPECT_EQ(signing_date(WallTime(std::chrono::seconds(784111777))), "19941106T084937Z");
  for (const char* bad : {"", "Sun, 31 Feb 1994 08:49:37 GMT", "Sun, 06 Nov 9999 08:49:37 GMT",
                          "Sun, 06 Nov 1994 08:49:37 UTC", "1994-13-06T08:49:37Z"}) {
    EXPECT_EQ(parse_http_date(bad), 0) << bad;
    EXPECT_EQ(parse_iso_date(bad), 0) << bad;
  }
}

TEST(OriginText, ReadsContentRanges) {
  const auto range = parse_content_range("bytes 5-9/100");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 5u);
  EXPECT_EQ(range->last, 9u);
  EXPECT_EQ(range->total, 100u);
  EXPECT_FALSE(parse_content_range("bytes 5-9/*")->total);
  for (const char* bad : {"", "bytes 9-5/100", "bytes */100", "bytes 5-9", "bytes 5-9/", "5-9/100",
                          "bytes -9/100", "bytes 5/9-100", "bytes 5-99999999999999999999/1"}) {
    EXPECT_FALSE(parse_content_range(bad)) << bad;
  }
}

TEST(OriginText, ReadsChecksums) {
  const auto hash = parse_base64_sha256("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
  ASSERT_TRUE(hash);
  EXPECT_EQ(*hash, sha256({}));
  EXPECT_FALSE(parse_base64_sha256("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=-2"));
  EXPECT_FALSE(parse_base64_sha256("47DEQpj8HBSa!/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="));
}

}  // namespace
}  // namespace quiver::cache
