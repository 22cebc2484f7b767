#include "cache/manifest/tar.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <sstream>

#include "cache/manifest/web_sample.h"
#include "io/file.h"

namespace quiver::cache {
namespace {

std::string golden(const std::string& name) {
  io::RealFiles files;
  return io::read_file(files, std::string(QUIVER_SOURCE_DIR) + "/tests/vectors/tar/" + name, 1_MiB)
      .value();
}

Result<std::vector<TarMember>> members_of(const std::string& archive) {
  std::vector<TarMember> members;
  TarReader reader("t.tar", archive.size());
  while (const auto need = reader.need()) {
    auto member = TRY(reader.give(as_bytes(archive).subspan(need->offset, need->length)));
    if (member) members.push_back(*std::move(member));
  }
  return members;
}

// One file of a plain archive.
std::string file_in_tar(const std::string& name, const std::string& body, char type = '0') {
  std::string block(kTarBlock, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    block.replace(at, text.size(), text);
  };
  put(0, name);
  put(124, fmt::format("{:011o}", body.size()));
  put(148, "        ");
  block[156] = type;
  put(257, std::string("ustar\0", 6) + "00");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  std::string content = body;
  content.resize((body.size() + kTarBlock - 1) / kTarBlock * kTarBlock);
  return block + content;
}
const std::string kEnd(2 * kTarBlock, '\0');

TEST(TarReader, ReadsWhatPythonsTarfileReads) {
  std::map<std::string, std::string> expected;
  std::istringstream lines(golden("members.txt"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    expected[line.substr(0, tab)] += line.substr(tab + 1) + "\n";
  }
  EXPECT_EQ(expected.size(), 7u);
  for (const auto& [name, listed] : expected) {
    std::string read;
    auto members = members_of(golden(name + ".tar")).value();
    for (TarMember& m : members) {
      if (!m.regular) m.name.resize(m.name.find_last_not_of('/') + 1);  // folders
      read += fmt::format("{}\t{}\t{}\t{:d}\t{}\n", m.begin, m.data, m.length, m.regular, m.name);
    }
    EXPECT_EQ(read, listed) << name;
  }
}

TEST(TarReader, ASizeOfBase256SkipsItsContent) {
  const std::string header = golden("big_size.tar");
  TarReader reader("big.tar", (std::uint64_t{9} << 30) + 1024);
  const auto member = reader.give(as_bytes(header)).value().value();
  EXPECT_EQ(member.length, std::uint64_t{9} << 30);
  EXPECT_EQ(reader.need()->offset, (std::uint64_t{9} << 30) + 512);
}

TEST(TarReader, WhereverAnArchiveIsCutOffItIsSaid) {
  const std::string whole = golden("tarfile_pax.tar");
  const auto all = members_of(whole).value();
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const auto cut = members_of(whole.substr(0, size));
    if (cut) {  // between two members, or behind them
      const std::uint64_t end = cut->back().end();
      EXPECT_GE(size, end);
      EXPECT_LE(size, cut->size() < all.size() ? all[cut->size()].begin : whole.size());
      continue;
    }
    EXPECT_EQ(cut.error().code, Code::kCorrupt);
    if (size < kTarBlock) continue;  // no archive
    const std::string& says = cut.error().message;
    const std::string where = fmt::format("'t.tar' is cut off: it ends at byte {}, ", size);
    EXPECT_NE(says.find(where), std::string::npos) << says;
    EXPECT_NE(says.find("copy or make it again"), std::string::npos) << says;
  }
}

TEST(TarReader, WhatCannotBeReadByRangesNamesTheCure) {
  EXPECT_NE(members_of(golden("sparse_gnu.tar")).error().message.find("--sparse"),
            std::string::npos);
  EXPECT_NE(members_of(golden("sparse_posix.tar")).error().message.find("--sparse"),
            std::string::npos);
  const std::string zipped = "\x1f\x8b" + std::string(600, 'x');
  EXPECT_NE(members_of(zipped).error().message.find("gunzip"), std::string::npos);
  EXPECT_EQ(members_of(zipped).error().code, Code::kInvalid);
  EXPECT_EQ(members_of(std::string(600, 'x')).error().code, Code::kCorrupt);
  EXPECT_EQ(members_of("").error().code, Code::kCorrupt);
  const std::string global = file_in_tar("g", "13 path=a.b\n\n", 'g');
  EXPECT_FALSE(members_of(global + file_in_tar("x.y", "z") + kEnd));
  const std::string harmless = file_in_tar("g", "16 comment=abcd\n", 'g');
  EXPECT_EQ(members_of(harmless + file_in_tar("x.y", "z") + kEnd).value()[0].name, "x.y");
}

TEST(TarReader, AFlippedBitOfAHeaderIsFound) {
  const std::string whole = file_in_tar("a.jpg", "first") + file_in_tar("a.cls", "1") + kEnd;
  ASSERT_EQ(members_of(whole).value().size(), 2u);
  rc::check([&] {
    std::string bad = whole;
    const auto at = *rc::gen::inRange<std::size_t>(0, kTarBlock) + *rc::gen::element(0, 1024);
    if (at % kTarBlock >= 148 && at % kTarBlock < 156) return;  // the sum itself: spaces are free
    bad[at] = static_cast<char>(bad[at] ^ (1 << *rc::gen::inRange(0, 8)));
    RC_ASSERT(!members_of(bad));
  });
}

TEST(WebSample, StemsAreThoseOfBasePlusExt) {
  const auto split = [](std::string_view name) {
    const auto s = base_plus_ext(name);
    return s ? fmt::format("{}|{}", s->stem, s->extension) : std::string("none");
  };
  EXPECT_EQ(split("a.b/1.1.png"), "a.b/1|1.png");
  EXPECT_EQ(split("./x"), "none");
  EXPECT_EQ(split("./x.png"), "./x|png");
  EXPECT_EQ(split("x."), "x|");
  EXPECT_EQ(split(".hidden"), "none");
  EXPECT_EQ(split("a/.hidden.png"), "a/|hidden.png");
  EXPECT_EQ(split("a.b/.hidden"), "none");
  EXPECT_EQ(split("Track 2.0 (Clean Version).mp3"), "Track 2|0 (Clean Version).mp3");
  EXPECT_EQ(split("/some/path/22.0/1.1.png"), "/some/path/22.0/1|1.png");
  EXPECT_EQ(split("a\nb/c.d/e.f"), "none");
  EXPECT_EQ(split(""), "none");
}

TEST(WebSample, AMetaFileAFolderAndALinkBelongToNone) {
  const auto stem = [](const std::string& name, bool regular) {
    const TarMember member{name, 0, 512, 1, regular};
    const auto file = file_of_sample(member);
    return file ? std::string(file->stem) : "none";
  };
  EXPECT_EQ(stem("a.jpg", true), "a");
  EXPECT_EQ(stem("a.jpg", false), "none");
  EXPECT_EQ(stem("__meta__/a.jpg", true), "none");
  EXPECT_EQ(stem("__a.jpg__", true), "none");
  EXPECT_EQ(stem("x/__meta__/a.jpg", true), "x/__meta__/a");
}

TEST(WebSample, FilesOfOneStemThatFollowOneAnotherAreASample) {
  const std::string archive = file_in_tar("a.jpg", "first") + file_in_tar("README", "no stem") +
                              file_in_tar("a.cls", "1") + file_in_tar("d/", "", '5') +
                              file_in_tar("b.jpg", "") + file_in_tar("a.txt", "again") + kEnd;
  std::vector<WebSample> samples;
  SampleGrouper grouper;
  const auto members = members_of(archive).value();
  for (const TarMember& member : members) {
    if (auto sample = grouper.add(member)) samples.push_back(*std::move(sample));
  }
  EXPECT_EQ(grouper.open_since(), samples.back().end);
  samples.push_back(grouper.finish().value());
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].begin, 0u);
  EXPECT_EQ(samples[0].end, 5 * kTarBlock + 1);
  const std::string bytes = archive.substr(samples[0].begin, samples[0].end - samples[0].begin);
  const SampleFiles a = take_apart(as_bytes(bytes), "t.tar/a").value();
  EXPECT_EQ(a.stem, "a");
  ASSERT_EQ(a.files.size(), 2u);
  EXPECT_EQ(a.files[0].extension, "jpg");
  EXPECT_EQ(as_text(a.files[0].bytes), "first");
  EXPECT_EQ(as_text(a.files[1].bytes), "1");
  EXPECT_EQ(samples[1].stem, "b");
  EXPECT_EQ(samples[2].stem, "a");
  EXPECT_EQ(take_apart(as_bytes(archive), "t.tar").error().code, Code::kCorrupt);
  EXPECT_EQ(take_apart(as_bytes(kEnd), "t.tar").error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace quiver::cache
