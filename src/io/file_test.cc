#include "io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "io/faulty_files.h"
#include "io/test_directory.h"

namespace quiver::io {
namespace {

MutableByteSpan span_of(std::string& s) {
  return std::as_writable_bytes(std::span(s));
}

// Every implementation of Files passes these; FaultyFiles without faults too.
class FilesContract : public testing::TestWithParam<bool> {
 protected:
  Files& files() { return GetParam() ? static_cast<Files&>(faulty_) : real_; }
  Fd make(const std::string& name, std::string_view text) {
    Fd fd = *files().open(dir_ / name, O_RDWR | O_CREAT, 0600);
    EXPECT_TRUE(files().pwrite(fd.get(), as_bytes(text), 0));
    return fd;
  }

  TestDirectory dir_;
  RealFiles real_;
  FaultyFiles faulty_{real_};
};

INSTANTIATE_TEST_SUITE_P(All, FilesContract, testing::Bool(),
                         [](const auto& param) { return param.param ? "Faulty" : "Real"; });

TEST_P(FilesContract, ReadsWhatWasWrittenAndStopsAtTheEnd) {
  const Fd fd = make("a", "hello world");
  std::string out(20, '-');
  EXPECT_EQ(*files().pread(fd.get(), span_of(out), 6), 5u);
  EXPECT_EQ(out.substr(0, 6), "world-");
  EXPECT_EQ(*files().pread(fd.get(), span_of(out), 11), 0u);
  ASSERT_TRUE(files().truncate(fd.get(), 3));
  EXPECT_EQ(*files().pread(fd.get(), span_of(out), 0), 3u);
  EXPECT_TRUE(files().sync(fd.get()));
}

TEST_P(FilesContract, DescriptorsCloseOnExec) {
  const Fd fd = make("a", "");
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_P(FilesContract, ErrorsNameThePath) {
  auto missing = files().open(dir_ / "no", O_RDONLY, 0);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_NE(missing.error().message.find(dir_ / "no"), std::string::npos);

  const Fd reader = (make("a", "x"), *files().open(dir_ / "a", O_RDONLY, 0));
  auto refused = files().pwrite(reader.get(), as_bytes("y"), 0);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(dir_ / "a"), std::string::npos);
  EXPECT_EQ(files().stat(dir_ / "no").error().code, Code::kNotFound);
  EXPECT_EQ(files().list(dir_ / "no").error().code, Code::kNotFound);
  EXPECT_EQ(files().space(dir_ / "no").error().code, Code::kNotFound);
  EXPECT_EQ(files().rename(dir_ / "no", dir_ / "b").error().code, Code::kNotFound);
}

TEST_P(FilesContract, StatTellsWhatAFileIs) {
  const Fd fd = make("a", std::string(10000, 'x'));
  const FileInfo by_path = *files().stat(dir_ / "a"), by_fd = *files().stat(fd.get());
  EXPECT_EQ(by_path.size, Bytes(10000));
  EXPECT_GE(by_path.blocks, Bytes(10000));
  EXPECT_TRUE(by_path.is_regular);
  EXPECT_FALSE(by_path.is_directory);
  EXPECT_EQ(by_path.inode, by_fd.inode);
  EXPECT_EQ(by_path.mode & 07777, 0600u);
  EXPECT_GT(by_path.mtime_ns, 1'000'000'000'000'000'000);
  EXPECT_TRUE(files().stat(dir_.path())->is_directory);
}

TEST_P(FilesContract, ListFollowsLinksToDirectories) {
  make("file", "x");
  ASSERT_TRUE(files().make_directories(dir_ / "sub", 0700));
  std::filesystem::create_symlink(dir_ / "sub", dir_ / "to_sub");
  std::filesystem::create_symlink(dir_ / "file", dir_ / "to_file");
  std::filesystem::create_symlink(dir_ / "nothing", dir_ / "dangling");
  auto entries = *files().list(dir_.path());
  std::sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.name < b.name; });
  std::string seen;
  for (const auto& e : entries) seen += e.name + (e.is_directory ? "/ " : " ");
  EXPECT_EQ(seen, "dangling file sub/ to_file to_sub/ ");
}

TEST_P(FilesContract, MakesDirectoriesAndRemovesWhatIsThere) {
  const std::string deep = dir_ / "x//y/z/";
  ASSERT_TRUE(files().make_directories(deep, 0700));
  ASSERT_TRUE(files().make_directories(deep, 0700));
  EXPECT_EQ(files().stat(dir_ / "x/y")->mode & 07777, 0700u);
  EXPECT_FALSE(files().remove(dir_ / "x")) << "is not empty";
  EXPECT_TRUE(files().remove(dir_ / "x/y/z"));
  EXPECT_TRUE(files().remove(dir_ / "x/y/z")) << "absent is success";
  make("file", "");
  EXPECT_FALSE(files().make_directories(dir_ / "file", 0700));
  EXPECT_FALSE(files().make_directories(dir_ / "file/under", 0700));
  EXPECT_TRUE(files().remove(dir_ / "file"));
  EXPECT_FALSE(files().stat(dir_ / "file"));
}

TEST_P(FilesContract, RenameReplaces) {
  make("a", "new");
  make("b", "old");
  ASSERT_TRUE(files().rename(dir_ / "a", dir_ / "b"));
  EXPECT_EQ(*read_file(files(), dir_ / "b", Bytes(10)), "new");
  EXPECT_FALSE(files().stat(dir_ / "a"));
}

TEST_P(FilesContract, SpaceIsPlausible) {
  const DiskSpace space = *files().space(dir_.path());
  EXPECT_GT(space.total, Bytes(0));
  EXPECT_LE(space.available, space.total);
}

TEST_P(FilesContract, WritesAtomicallyWithTheModeAskedFor) {
  ASSERT_TRUE(write_file_atomically(files(), dir_ / "a", as_bytes("one")));
  ASSERT_TRUE(write_file_atomically(files(), dir_ / "a", as_bytes("two"), 0640));
  EXPECT_EQ(*read_file(files(), dir_ / "a", Bytes(3)), "two");
  EXPECT_EQ(files().stat(dir_ / "a")->mode & 07777, 0640u);
  EXPECT_EQ(files().list(dir_.path())->size(), 1u) << "a temporary file was left";
}

TEST(ReadFile, HoldsToItsLimit) {
  TestDirectory dir;
  RealFiles files;
  ASSERT_TRUE(write_file_atomically(files, dir / "a", as_bytes("12345")));
  EXPECT_EQ(*read_file(files, dir / "a", Bytes(5)), "12345");
  EXPECT_EQ(read_file(files, dir / "a", Bytes(4)).error().code, Code::kInvalid);
  EXPECT_EQ(read_file(files, dir / "a", Bytes(UINT64_MAX))->size(), 5u);
}

TEST(ReadFile, ReadsFilesWhoseSizeLies) {
  RealFiles files;
  ASSERT_EQ(files.stat("/proc/self/status")->size, Bytes(0));
  const std::string text = *read_file(files, "/proc/self/status", Bytes(1 << 20));
  EXPECT_NE(text.find("Pid:"), std::string::npos);
  EXPECT_EQ(read_file(files, "/proc/self/status", Bytes(16)).error().code, Code::kInvalid);
}

TEST(ReadFile, GivesBackAnyContent) {
  TestDirectory dir;
  RealFiles files;
  EXPECT_TRUE(rc::check("what was written is read", [&](const std::string& text) {
    RC_ASSERT(write_file_atomically(files, dir / "a", as_bytes(text)).has_value());
    RC_ASSERT(*read_file(files, dir / "a", Bytes(text.size())) == text);
  }));
}

TEST(WriteFile, IsCompleteOrAbsentWhateverFails) {
  for (const FileOp op : {FileOp::kOpen, FileOp::kPwrite, FileOp::kSync, FileOp::kRename}) {
    TestDirectory dir;
    RealFiles real;
    FaultyFiles files(real);
    ASSERT_TRUE(write_file_atomically(files, dir / "a", as_bytes("old")));
    files.add(
        {.op = op, .times = 1, .shorten = op == FileOp::kPwrite ? std::optional(2) : std::nullopt});
    EXPECT_FALSE(write_file_atomically(files, dir / "a", as_bytes("newer")));
    EXPECT_EQ(files.injected(), 1u);
    EXPECT_EQ(*read_file(real, dir / "a", Bytes(10)), "old");
    EXPECT_EQ(real.list(dir.path())->size(), 1u) << "a temporary file was left";
  }
}

}  // namespace
}  // namespace quiver::io
