#include "cache/origin/s3_xml.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "cache/origin/s3_error.h"

namespace quiver::cache {
namespace {

std::string vector_file(const std::string& name) {
  std::ifstream in(QUIVER_SOURCE_DIR "/tests/vectors/origin/" + name, std::ios::binary);
  EXPECT_TRUE(in) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(S3Xml, ReadsAPageAsS3SendsIt) {
  auto page = parse_s3_page(vector_file("s3_page.xml"));
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_EQ(page->next, "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=");
  ASSERT_EQ(page->objects.size(), 3u);
  EXPECT_EQ(page->objects[0].key, "set/a b+c.png");
  EXPECT_EQ(page->objects[0].version.size, Bytes(110592));
  EXPECT_EQ(page->objects[0].version.etag, "\"9b2cf535f27731c974343645a3985328\"");
  EXPECT_EQ(page->objects[0].version.mtime_ns, 1714566896'000'000'000);
  EXPECT_EQ(page->objects[1].version.etag, "\"d41d8cd98f00b204e9800998ecf8427e\"");
  EXPECT_EQ(page->objects[2].key, "set/日.png");
  EXPECT_EQ(page->objects[2].version.size, Bytes(5368709120));
}

TEST(S3Xml, KeysAreDecodedOnlyWhereTheStoreSaysSo) {
  const auto key = [](const std::string& encoding) {
    return parse_s3_page("<ListBucketResult>" + encoding +
                         "<Contents><Key>a+%41&#x9; &amp;</Key><Size>1</Size></Contents>"
                         "</ListBucketResult>")
        ->objects.at(0)
        .key;
  };
  EXPECT_EQ(key("<EncodingType>url</EncodingType>"), "a A\t &");
  EXPECT_EQ(key(""), "a+%41\t &");
  EXPECT_EQ(parse_s3_page("<ListBucketResult><Contents><Key> </Key><Size>1</Size></Contents>"
                          "</ListBucketResult>")
                ->objects.at(0)
                .key,
            " ");
}

TEST(S3Xml, EveryTruncationOfAPageIsRefused) {
  const std::string whole = vector_file("s3_page.xml");
  const std::size_t end = whole.rfind('>');
  for (std::size_t length = 0; length <= end; ++length) {
    EXPECT_FALSE(parse_s3_page(std::string_view(whole).substr(0, length))) << length;
  }
}

TEST(S3Xml, TooLongIsRefused) {
  EXPECT_EQ(parse_s3_page(std::string(kMaxS3Xml.value + 1, ' ')).error().code, Code::kCorrupt);
}

TEST(S3Xml, ErrorsNameTheRegion) {
  io::HttpResponse answer;
  answer.status = 301;
  answer.body = vector_file("s3_error.xml");
  EXPECT_EQ(s3_region_hint(answer), "eu-west-1");
  answer.headers = {{"x-amz-bucket-region", "eu-west-2"}};
  EXPECT_EQ(s3_region_hint(answer), "eu-west-2");
  answer.headers = {{"x-amz-bucket-region", "evil/../host"}};
  EXPECT_EQ(s3_region_hint(answer), "");
  EXPECT_FALSE(parse_s3_error("<html><Error/></html>"));
  EXPECT_FALSE(parse_s3_error("plain text"));
}

}  // namespace
}  // namespace quiver::cache
