#include "cache/client/digest_archives.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "cache/client/archive_window.h"
#include "cache/manifest/web_sample.h"
#include "cache/origin/memory_origin.h"

namespace quiver::cache {
namespace {

// One file of an archive: names so short need no more than this.
std::string file_in_tar(const std::string& name, std::size_t length) {
  std::string block(kTarBlock, '\0');
  block.replace(0, name.size(), name);
  block.replace(124, 11, fmt::format("{:011o}", length));
  block.replace(148, 8, "        ");
  block[156] = '0';
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  block.replace(148, 6, fmt::format("{:06o}", sum));
  std::string content(length, static_cast<char>('a' + length % 26));
  content.resize((length + kTarBlock - 1) / kTarBlock * kTarBlock);
  return block + content;
}

class Archives : public testing::Test {
 protected:
  Archives() { options.layout = Layout::kWebDataset; }
  void put(const std::string& key, const std::string& members) {
    const std::string archive = members + std::string(2 * kTarBlock, '\0');
    origin.put(key, archive);
    size[key] = archive.size();
  }
  Result<IndexReport> index() {
    listing = list_archives(options, {}, origin, {}, {}).value();
    return index_archives(options, origin, {}, nullptr, listing, {}, {});
  }
  std::uint64_t bytes_read() { return origin.stats().body_bytes.value; }

  MemoryOrigin origin;
  DigestOptions options;
  Listing listing;
  std::map<std::string, std::uint64_t> size;
};

TEST_F(Archives, EachIsReadOnceAndItsSamplesAreHashedAsTheyPass) {
  put("b.tar", file_in_tar("1.jpg", 70'000) + file_in_tar("1.cls", 1));
  put("a.tar", file_in_tar("1.jpg", 3) + file_in_tar("2.jpg", 4) + file_in_tar("1.jpg", 5));
  origin.put("notes.txt", "none");
  const IndexReport report = index().value();
  EXPECT_EQ(report.downloaded, 4u);
  EXPECT_EQ(bytes_read(), size["a.tar"] + size["b.tar"]);
  EXPECT_EQ(listing.left_out, 1u);
  std::vector<std::string> keys;
  for (const Pick& pick : listing.picks) {
    keys.emplace_back(pick.key);
    EXPECT_TRUE(pick.passed);
    std::string bytes(pick.length.value, '\0');
    const ListedObject& object = listing.objects[pick.object];
    const auto out = std::as_writable_bytes(std::span(bytes));
    ASSERT_TRUE(origin.read({object.key, pick.offset, object.version}, out, {}));
    EXPECT_EQ(pick.hash, sha256(as_bytes(bytes)));
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"a.tar/1", "a.tar/2", "a.tar/1@2048", "b.tar/1"}));
}

TEST_F(Archives, LazilyOnlyHeadersAreRead) {
  options.lazy = true;
  std::string members;
  for (int i = 0; i < 20; ++i) {
    members +=
        file_in_tar(fmt::format("{}.jpg", i), 2 << 20) + file_in_tar(fmt::format("{}.cls", i), 1);
  }
  put("a.tar", members);
  EXPECT_EQ(index().value().downloaded, 0u);
  EXPECT_EQ(listing.picks.size(), 20u);
  EXPECT_FALSE(listing.picks[7].passed);
  EXPECT_LT(bytes_read(), 2u << 20);  // the first piece, then 4 KiB each
  EXPECT_LE(origin.stats().gets, 25u);
}

TEST_F(Archives, ASampleLongerThanAWindowIsLeftToBeReadByRanges) {
  put("a.tar", file_in_tar("1.jpg", 9) + file_in_tar("2.bin", ArchiveWindow::kLargest + 1) +
                   file_in_tar("2.cls", 1) + file_in_tar("3.jpg", 9));
  EXPECT_EQ(index().value().downloaded, 2u);
  ASSERT_EQ(listing.picks.size(), 3u);
  EXPECT_FALSE(listing.picks[1].passed);
  EXPECT_EQ(listing.picks[1].length.value, ArchiveWindow::kLargest + 1 + 1536);
  EXPECT_LT(bytes_read(), 10u << 20);
}

TEST_F(Archives, WhatHasNoSampleIsOneSentence) {
  put("a.tar", file_in_tar("README", 10));
  EXPECT_NE(index().error().message.find("no sample"), std::string::npos);
}

// Whatever is asked for in order, and kept, the window holds the archive's bytes.
TEST(ArchiveWindow, HoldsWhatTheArchiveHas) {
  std::string archive(3 << 20, '\0');
  for (std::size_t i = 0; i < archive.size(); ++i)
    archive[i] = static_cast<char>(i * 2654435761u >> 13);
  MemoryOrigin origin;
  origin.put("a", archive);
  const ListedObject object = origin.head("a", {}).value();
  rc::check([&] {
    std::string memory;
    ArchiveWindow window(origin, object, *rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>(),
                         memory);
    std::uint64_t at = 0;
    while (at < archive.size()) {
      const auto length = std::min<std::uint64_t>(*rc::gen::inRange(1, 2000), archive.size() - at);
      const auto keep = at - std::min<std::uint64_t>(at, *rc::gen::inRange(0, 500'000));
      RC_ASSERT(as_text(window.get(at, length, keep, {}).value()) == archive.substr(at, length));
      if (const auto kept = window.held(keep, at - keep)) {
        RC_ASSERT(as_text(*kept) == archive.substr(keep, at - keep));
      }
      at += length + *rc::gen::inRange(0, 700'000);
    }
  });
}

TEST(ArchiveAddress, ARangeOfNumbersIsItsArchives) {
  const auto names = [](const std::string& url) { return archive_address(url).value().names; };
  using Names = std::vector<std::string>;
  EXPECT_EQ(archive_address("s3://b/p/x.tar").value().folder, "s3://b/p");
  EXPECT_EQ(names("s3://b/p/x.tar"), Names{"x.tar"});
  EXPECT_EQ(names("s3://b/p"), Names{});
  EXPECT_EQ(names("/d/x-{08..11}.tar"), (Names{"x-08.tar", "x-09.tar", "x-10.tar", "x-11.tar"}));
  EXPECT_EQ(names("/d/{9..10}.tar"), (Names{"9.tar", "10.tar"}));
  EXPECT_EQ(archive_address("s3://b/{0..1}/{0..1}.tar").value().folder, "s3://b");
  EXPECT_EQ(names("s3://b/{0..1}/{0..1}.tar"), (Names{"0/0.tar", "0/1.tar", "1/0.tar", "1/1.tar"}));
  for (const char* bad : {"/d/{a,b}.tar", "/d/{2..1}.tar", "/d/{0..1.tar", "/d/{..3}.tar",
                          "/d/{0..9999999}.tar", "/d/{0..9999}{0..9999}.tar"}) {
    EXPECT_EQ(archive_address(bad).error().code, Code::kInvalid) << bad;
  }
}

}  // namespace
}  // namespace quiver::cache
