#include "cache/origin/directory_origin.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>

#include "io/faulty_files.h"

namespace quiver::cache {
namespace {

namespace fs = std::filesystem;

struct DirectoryOriginTest : ::testing::Test {
  DirectoryOriginTest() {
    std::string name = (fs::temp_directory_path() / "quiver-dir-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    top = name;
    fs::create_directories(top / "root/sub");
    put("k", "0123456789");
    origin = *open_origin({.url = (top / "root").string()}, {files, *http, clock});
  }
  ~DirectoryOriginTest() override { fs::remove_all(top); }

  void put(const std::string& key, const std::string& bytes) {
    std::ofstream(top / "root" / key, std::ios::binary) << bytes;
  }
  std::vector<std::string> keys() {
    std::vector<std::string> found;
    auto done = origin->list(
        [&](ListedObject o) -> Status {
          found.push_back(o.key);
          return {};
        },
        {});
    EXPECT_TRUE(done) << done.error().message;
    return found;
  }
  Status read(const std::string& key, ObjectVersion expected = {}) {
    return origin->read({key, 0, std::move(expected)}, std::as_writable_bytes(std::span(out)), {});
  }

  fs::path top;
  io::RealFiles real;
  io::FaultyFiles files{real};
  std::unique_ptr<io::HttpTransport> http = io::make_curl_transport(1);
  RealClock clock;
  std::unique_ptr<Origin> origin;
  std::string out = std::string(10, '?');
};

TEST_F(DirectoryOriginTest, LinksAreFollowedAndLoopsEnd) {
  fs::create_directory(top / "outside");
  std::ofstream(top / "outside/o") << "o";
  put("sub/s", "s");
  fs::create_symlink("k", top / "root/relative");
  fs::create_symlink(top / "outside", top / "root/away");
  fs::create_symlink("nowhere", top / "root/dangling");
  fs::create_symlink("..", top / "root/sub/up");
  fs::create_symlink("self", top / "root/self");
  ASSERT_EQ(mkfifo((top / "root/pipe").c_str(), 0600), 0);
  EXPECT_EQ(keys(), (std::vector<std::string>{"away/o", "k", "relative", "sub/s"}));
}

TEST_F(DirectoryOriginTest, KeysComeInTheOrderOfS3) {
  put("sub/x", "");
  put("sub.txt", "");
  put("sub-a", "");
  EXPECT_EQ(keys(), (std::vector<std::string>{"k", "sub-a", "sub.txt", "sub/x"}));
}

TEST_F(DirectoryOriginTest, NoKeyLeavesTheRoot) {
  std::ofstream(top / "secret") << "0123456789";
  for (const char* key : {"../secret", "sub/../../secret", "/k", "", ".", "sub//k", "k/", "pipe"}) {
    EXPECT_EQ(read(key).error().code, Code::kNotFound) << key;
    EXPECT_EQ(origin->head(key, {}).error().code, Code::kNotFound) << key;
  }
}

TEST_F(DirectoryOriginTest, APipeDoesNotBlock) {
  ASSERT_EQ(mkfifo((top / "root/pipe").c_str(), 0600), 0);
  EXPECT_EQ(read("pipe").error().code, Code::kNotFound);
}

TEST_F(DirectoryOriginTest, AnUnreadableFileIsNamed) {
  files.add({.op = io::FileOp::kOpen, .path = "root/k", .errno_value = EACCES});
  auto done = read("k");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kDenied);
  files.clear();
  if (geteuid() == 0) return;  // root may read everything
  fs::permissions(top / "root/k", fs::perms::none);
  done = read("k");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kDenied);
  EXPECT_NE(done.error().message.find("root/k"), std::string::npos);
}

TEST_F(DirectoryOriginTest, AStaleHandleIsReopenedOnce) {
  for (auto op : {io::FileOp::kOpen, io::FileOp::kPread, io::FileOp::kStat}) {
    files.clear();
    files.add({.op = op, .path = "root/k", .times = 1, .errno_value = ESTALE});
    EXPECT_TRUE(read("k")) << static_cast<int>(op);
    EXPECT_EQ(out, "0123456789");
    files.clear();
    files.add({.op = op, .path = "root/k", .errno_value = ESTALE});
    const auto calls = files.calls(op);
    auto done = read("k");
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::kIo);
    EXPECT_EQ(files.calls(op) - calls, 2u);
  }
}

// Overwritten in place while it is read, with the same length.
TEST_F(DirectoryOriginTest, AWriteDuringTheReadIsChanged) {
  struct WriteInBetween final : io::Files {
    explicit WriteInBetween(io::Files& inner) : f(inner) {}
    Result<std::size_t> pread(int fd, MutableByteSpan to, std::uint64_t offset) override {
      auto got = f.pread(fd, to.first(to.size() / 2), offset);
      std::ofstream(path, std::ios::binary) << "ABCDEFGHIJ";
      auto rest = f.pread(fd, to.subspan(to.size() / 2), offset + to.size() / 2);
      return *got + *rest;
    }
    Result<io::Fd> open(const std::string& p, int flags, mode_t m) override {
      return f.open(p, flags, m);
    }
    Status pwrite(int fd, ByteSpan d, std::uint64_t o) override { return f.pwrite(fd, d, o); }
    Status truncate(int fd, std::uint64_t s) override { return f.truncate(fd, s); }
    Status sync(int fd) override { return f.sync(fd); }
    Result<io::FileInfo> stat(const std::string& p) override { return f.stat(p); }
    Result<io::FileInfo> stat(int fd) override { return f.stat(fd); }
    Result<std::vector<io::DirEntry>> list(const std::string& d) override { return f.list(d); }
    Status make_directories(const std::string& p, mode_t m) override {
      return f.make_directories(p, m);
    }
    Status rename(const std::string& a, const std::string& b) override { return f.rename(a, b); }
    Status remove(const std::string& p) override { return f.remove(p); }
    Result<io::DiskSpace> space(const std::string& p) override { return f.space(p); }
    io::Files& f;
    std::string path;
  } racing(real);
  racing.path = (top / "root/k").string();
  const timespec old[] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, racing.path.c_str(), old, 0), 0);
  auto watched = *open_origin({.url = (top / "root").string()}, {racing, *http, clock});
  auto done = watched->read({"k", 0, {}}, std::as_writable_bytes(std::span(out)), {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kChanged);
}

TEST_F(DirectoryOriginTest, AMissingRootIsNotFound) {
  auto missing = *open_origin({.url = "file://" + (top / "none").string()}, {files, *http, clock});
  auto done = missing->list([](ListedObject) -> Status { return {}; }, {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kNotFound);
  EXPECT_NE(done.error().message.find("none"), std::string::npos);
  EXPECT_FALSE(open_origin({.url = "file://host/path"}, {files, *http, clock}));
}

}  // namespace
}  // namespace quiver::cache
