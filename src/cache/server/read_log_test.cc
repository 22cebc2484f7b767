#include "cache/server/read_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>

namespace quiver::cache {
namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/quiver-read-log-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file() const { return path + "/log/0123"; }
  std::string path;
};

Sha256 content(std::uint32_t n) {
  return sha256(std::as_bytes(std::span(&n, 1)));
}

ReadLog open_log(io::Files& files, const Folder& folder, std::uint32_t items) {
  return ReadLog::open(files, folder.path + "/log", "0123", items).value();
}

void write_rows(io::Files& files, const Folder& folder, std::uint32_t from, std::uint32_t to) {
  ReadLog log = open_log(files, folder, 100);
  for (std::uint32_t i = from; i < to; ++i) ASSERT_TRUE(log.add(ItemId(i), content(i)));
}

// Cut anywhere, and with any byte changed: what comes back is a beginning of what was written, and
// what is added then comes back too.
RC_GTEST_PROP(ReadLog, GivesABeginningOfWhatWasWrittenWhateverHappensToTheFile, ()) {
  io::RealFiles files;
  Folder folder;
  write_rows(files, folder, 0, 20);
  const auto size = std::filesystem::file_size(folder.file());
  const auto keep = *rc::gen::inRange<std::uint64_t>(0, size + 1);
  std::filesystem::resize_file(folder.file(), keep);
  const auto at = *rc::gen::inRange<std::uint64_t>(0, size);
  if (at < keep) {
    std::fstream file(folder.file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(old ^ 1));
  }
  const std::size_t whole = std::min(keep / 40, at / 40);
  ReadLog log = open_log(files, folder, 100);
  const auto rows = log.take_rows();
  RC_ASSERT(rows.size() == (at < keep ? whole : keep / 40));
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    RC_ASSERT(rows[i].first == ItemId(i));
    RC_ASSERT(rows[i].second == content(i));
  }
  RC_ASSERT(log.add(ItemId(77), content(77)).has_value());
  auto again = open_log(files, folder, 100).take_rows();
  RC_ASSERT(again.size() == rows.size() + 1);
  RC_ASSERT(again.back().first == ItemId(77));
}

TEST(ReadLog, IsOfItsManifestOnly) {
  io::RealFiles files;
  Folder folder;
  write_rows(files, folder, 0, 20);
  EXPECT_EQ(open_log(files, folder, 10).take_rows().size(), 10u);
  ReadLog log = open_log(files, folder, 100);
  EXPECT_TRUE(log.remove());
  EXPECT_FALSE(std::filesystem::exists(folder.file()));
}

}  // namespace
}  // namespace quiver::cache
