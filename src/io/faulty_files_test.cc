#include "io/faulty_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "io/test_directory.h"

namespace quiver::io {
namespace {

class FaultyFilesTest : public testing::Test {
 protected:
  Fd open(const std::string& name) { return *files_.open(dir_ / name, O_RDWR | O_CREAT, 0600); }
  Bytes size(const Fd& fd) { return real_.stat(fd.get())->size; }

  TestDirectory dir_;
  RealFiles real_;
  FaultyFiles files_{real_};
};

TEST_F(FaultyFilesTest, HitsTheNthCallAndNoOther) {
  const Fd fd = open("a");
  files_.add({.op = FileOp::kPwrite, .skip = 1, .times = 2, .errno_value = ENOSPC});
  std::string seen;
  for (int i = 0; i < 5; ++i) {
    const Status s = files_.pwrite(fd.get(), as_bytes("x"), 0);
    seen += s ? '.' : 'F';
    if (!s) {
      EXPECT_EQ(s.error().code, Code::kNoSpace);
    }
  }
  EXPECT_EQ(seen, ".FF..");
  EXPECT_EQ(files_.calls(FileOp::kPwrite), 5u);
  EXPECT_EQ(files_.injected(), 2u);
  EXPECT_EQ(files_.calls(FileOp::kSync), 0u);
}

TEST_F(FaultyFilesTest, ChoosesByPathAlsoForDescriptors) {
  const Fd good = open("good"), bad = open("bad");
  files_.add({.op = FileOp::kSync, .path = "/bad"});
  EXPECT_TRUE(files_.sync(good.get()));
  EXPECT_FALSE(files_.sync(bad.get()));
  files_.clear();
  EXPECT_TRUE(files_.sync(bad.get()));
}

TEST_F(FaultyFilesTest, ShortensReadsAndWrites) {
  const Fd fd = open("a");
  ASSERT_TRUE(files_.pwrite(fd.get(), as_bytes("0123456789"), 0));
  files_.add({.op = FileOp::kPread, .times = 1, .shorten = 4});
  std::string out(10, '-');
  EXPECT_EQ(*files_.pread(fd.get(), std::as_writable_bytes(std::span(out)), 0), 4u);
  EXPECT_EQ(out, "0123------");
  EXPECT_EQ(*files_.pread(fd.get(), std::as_writable_bytes(std::span(out)), 0), 10u);

  files_.add({.op = FileOp::kPwrite, .times = 1, .shorten = 3});
  EXPECT_EQ(files_.pwrite(fd.get(), as_bytes("abcdef"), 10).error().code, Code::kIo);
  EXPECT_EQ(size(fd), Bytes(13));
}

TEST_F(FaultyFilesTest, EveryOperationCanFail) {
  const Fd fd = open("a");
  for (int op = 0; op <= static_cast<int>(FileOp::kSpace); ++op) {
    files_.add({.op = static_cast<FileOp>(op)});
  }
  std::string out(1, '-');
  EXPECT_FALSE(files_.open(dir_ / "a", O_RDONLY, 0));
  EXPECT_FALSE(files_.pread(fd.get(), std::as_writable_bytes(std::span(out)), 0));
  EXPECT_FALSE(files_.pwrite(fd.get(), as_bytes("x"), 0));
  EXPECT_FALSE(files_.truncate(fd.get(), 0));
  EXPECT_FALSE(files_.sync(fd.get()));
  EXPECT_FALSE(files_.stat(dir_ / "a"));
  EXPECT_FALSE(files_.stat(fd.get()));
  EXPECT_FALSE(files_.list(dir_.path()));
  EXPECT_FALSE(files_.make_directories(dir_ / "d", 0700));
  EXPECT_FALSE(files_.rename(dir_ / "a", dir_ / "b"));
  EXPECT_FALSE(files_.remove(dir_ / "a"));
  EXPECT_FALSE(files_.space(dir_.path()));
  EXPECT_EQ(files_.injected(), 12u);
  EXPECT_TRUE(real_.stat(dir_ / "a")) << "a failed call must change nothing";
  EXPECT_FALSE(real_.stat(dir_ / "d"));
}

TEST_F(FaultyFilesTest, CapacityEndsInTheMiddleOfAWrite) {
  const Fd fd = open("a");
  files_.set_capacity(Bytes(5));
  EXPECT_TRUE(files_.pwrite(fd.get(), as_bytes("abc"), 0));
  EXPECT_EQ(files_.pwrite(fd.get(), as_bytes("def"), 3).error().code, Code::kNoSpace);
  EXPECT_EQ(size(fd), Bytes(5));
  EXPECT_EQ(files_.pwrite(fd.get(), as_bytes("g"), 5).error().code, Code::kNoSpace);
  EXPECT_EQ(files_.injected(), 2u);
  files_.set_capacity(std::nullopt);
  EXPECT_TRUE(files_.pwrite(fd.get(), as_bytes("g"), 5));
}

}  // namespace
}  // namespace quiver::io
