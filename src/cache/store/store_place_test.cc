// Whose directory it is: what another user may have made or written is not trusted.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "cache/store/store_testing.h"
#include "io/faulty_files.h"

namespace quiver::cache {
namespace {

using namespace std::chrono_literals;

struct StorePlaceTest : StoreFixture {
  Error refusal() {
    const auto store = Store::open(options, files, clock, log);
    EXPECT_FALSE(store);
    return store ? Error{} : store.error();
  }
  void make_directory(mode_t mode) {
    std::filesystem::create_directory(options.directory);
    ASSERT_EQ(::chmod(options.directory.c_str(), mode), 0);
  }
  std::uint32_t mode() const {
    return static_cast<std::uint32_t>(std::filesystem::status(options.directory).permissions());
  }
};

TEST_F(StorePlaceTest, AnotherUsersDirectoryIsRefusedAndNotTouched) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make what is somebody else's";
  make_directory(0777);
  std::ofstream(options.directory + "/quiver-cache");
  ASSERT_EQ(::chown(options.directory.c_str(), 65534, 65534), 0);
  const Error e = refusal();
  EXPECT_EQ(e.code, Code::kDenied);
  EXPECT_NE(e.message.find("65534"), std::string::npos) << e.message;
  EXPECT_NE(e.message.find("cache_dir"), std::string::npos) << e.message;
  EXPECT_FALSE(std::filesystem::exists(options.directory + "/segments"));
  EXPECT_EQ(std::filesystem::file_size(options.directory + "/quiver-cache"), 0u);
}

TEST_F(StorePlaceTest, AFreshDirectoryOfOursGetsItsModeRight) {
  make_directory(0777);
  std::ofstream(options.directory + "/quiver-cache");
  std::ofstream(options.directory + "/quiverd.log") << "starting";
  EXPECT_TRUE(put(*open(), content(1, 100)));
  EXPECT_EQ(mode(), 0700u);
}

TEST_F(StorePlaceTest, WhatOthersMayHaveWrittenIntoIsRefused) {
  EXPECT_TRUE(put(*open(), content(1, 100)));
  for (const mode_t shared : {0720, 0702, 0777}) {
    ASSERT_EQ(::chmod(options.directory.c_str(), shared), 0);
    const Error e = refusal();
    EXPECT_EQ(e.code, Code::kDenied);
    EXPECT_NE(e.message.find("can be written by others"), std::string::npos) << e.message;
    EXPECT_EQ(mode(), shared) << "not touched";
  }
  ASSERT_EQ(::chmod(options.directory.c_str(), 0755), 0);
  ASSERT_EQ(::chmod((options.directory + "/segments").c_str(), 0777), 0);
  EXPECT_EQ(refusal().code, Code::kDenied);
  ASSERT_EQ(::chmod((options.directory + "/segments").c_str(), 0700), 0);
  EXPECT_TRUE(has(*open(), content(1, 100)));
}

TEST_F(StorePlaceTest, LinksAreNotFollowed) {
  std::filesystem::create_directory(options.directory + "-elsewhere");
  std::filesystem::create_directory_symlink(options.directory + "-elsewhere", options.directory);
  const Error e = refusal();
  EXPECT_NE(e.message.find("symbolic link"), std::string::npos) << e.message;
  EXPECT_TRUE(std::filesystem::is_empty(options.directory + "-elsewhere"));
  std::filesystem::remove(options.directory);

  auto store = open();
  const auto at = put(*store, content(1, 5000));
  const std::string victim = options.directory + "-victim";
  std::ofstream(victim) << "precious";
  std::filesystem::remove(segment_path(at->segment));
  std::filesystem::create_symlink(victim, segment_path(at->segment));
  EXPECT_FALSE(store->open_segment(at->segment));
  store->evict(at->segment);
  store->wait_until_freed(5s);
  EXPECT_EQ(std::filesystem::file_size(victim), 8u);
}

// The directory of another daemon, put in the place of ours, has segments of the same numbers.
TEST_F(StorePlaceTest, AnotherDirectoryInItsPlaceIsNeverWritten) {
  auto store = open();
  const auto at = put(*store, content(1, 5000));
  std::filesystem::rename(options.directory, options.directory + "-moved");
  std::filesystem::create_directories(options.directory + "/segments");
  std::ofstream(segment_path(at->segment)) << "of another daemon";
  store->evict(at->segment);
  EXPECT_TRUE(store->wait_until_freed(5s));
  EXPECT_EQ(std::filesystem::file_size(segment_path(at->segment)), 17u);
}

// Where only a part of the directory has gone, the lock stays ours all the while.
TEST_F(StorePlaceTest, NoOtherDaemonGetsInWhileItIsMadeAnew) {
  io::FaultyFiles faulty(files);
  auto store = open_with(faulty);
  faulty.add({.op = io::FileOp::kOpen, .path = "quiver-cache", .stall = 200ms});
  faulty.add({.op = io::FileOp::kMakeDirectories, .path = "segments", .stall = 200ms});
  std::filesystem::remove_all(options.directory + "/segments");
  std::jthread making([&] { EXPECT_TRUE(store->recreate_if_gone().value()); });
  int tries = 0;
  for (const auto until = std::chrono::steady_clock::now() + 300ms;
       std::chrono::steady_clock::now() < until; ++tries) {
    const auto second = Store::open(options, files, clock, log);
    ASSERT_FALSE(second);
    ASSERT_EQ(second.error().code, Code::kUnavailable) << second.error().message;
  }
  EXPECT_GT(tries, 10);
}

}  // namespace
}  // namespace quiver::cache
