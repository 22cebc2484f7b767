#include "cache/client/segment_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "io/test_directory.h"

namespace quiver::cache {
namespace {

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}
constexpr auto kMe = SegmentTable::Owner(1), kOther = SegmentTable::Owner(2);

io::Fd some_fd() {
  return io::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

TEST(SegmentTable, ADescriptorStaysOpenWhileAReadUsesIt) {
  SegmentTable table(16);
  auto held = table.insert(kMe, SegmentId(1), some_fd());
  const int number = held->fd.get();
  table.forget(kMe, SegmentId(1));
  EXPECT_EQ(table.find(kMe, SegmentId(1)), nullptr);
  EXPECT_TRUE(is_open(number));
  held.reset();
  EXPECT_FALSE(is_open(number));
}

TEST(SegmentTable, TheFirstOfTwoDescriptorsWins) {
  SegmentTable table(16);
  const auto first = table.insert(kMe, SegmentId(1), some_fd());
  EXPECT_EQ(table.insert(kMe, SegmentId(1), some_fd()), first);
  EXPECT_EQ(table.find(kMe, SegmentId(1)), first);
}

TEST(SegmentTable, IsBoundedAndDropsOneThatWasNotUsed) {
  SegmentTable table(32);  // two in each of its sixteen parts
  table.insert(kMe, SegmentId(0), some_fd());
  table.insert(kMe, SegmentId(16), some_fd());
  table.insert(kMe, SegmentId(32), some_fd());  // the marks of those looked at are cleared
  EXPECT_EQ(table.size(), 2u);
  ASSERT_NE(table.find(kMe, SegmentId(32)), nullptr);
  table.insert(kMe, SegmentId(48), some_fd());
  EXPECT_NE(table.find(kMe, SegmentId(32)), nullptr);  // used since
  for (std::uint32_t i = 0; i < 1000; ++i) table.insert(kMe, SegmentId(i), some_fd());
  EXPECT_EQ(table.size(), 32u);
}

TEST(SegmentTable, SessionsShareTheLimitAndNotTheSegments) {
  SegmentTable table(32);
  const auto mine = table.insert(kMe, SegmentId(1), some_fd());
  EXPECT_EQ(table.find(kOther, SegmentId(1)), nullptr);
  EXPECT_NE(table.insert(kOther, SegmentId(1), some_fd()), mine);
  for (std::uint32_t i = 0; i < 100; ++i) table.insert(kMe, SegmentId(i), some_fd());
  for (std::uint32_t i = 0; i < 100; ++i) table.insert(kOther, SegmentId(i), some_fd());
  EXPECT_EQ(table.size(), 32u);
  table.remove_owner(kMe);
  table.remove_owner(kOther);
  EXPECT_EQ(table.size(), 0u);
}

// A process of its own: what is open here counts there too.
TEST(SegmentTable, LeavesDescriptorsToTheRestOfTheProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 96;
    if (::setrlimit(RLIMIT_NOFILE, &limit) < 0) ::_exit(1);
    SegmentTable table;
    for (std::uint32_t i = 0; i < 1000; ++i) {
      io::Fd fd = some_fd();
      if (!fd.valid() || !table.insert(kMe, SegmentId(i), std::move(fd))) ::_exit(2);
    }
    if (table.size() > 32 || table.size() < 16) ::_exit(3);
    std::vector<io::Fd> others;  // of a process that needs nearly all itself
    while (others.empty() || others.back().get() < 72) others.push_back(some_fd());
    for (std::uint32_t i = 0; i < 1000; ++i) {
      io::Fd fd = some_fd();
      if (!fd.valid() || !table.insert(kMe, SegmentId(i), std::move(fd))) ::_exit(4);
    }
    for (int i = 0; i < 15; ++i) others.push_back(some_fd());
    ::_exit(others.back().valid() ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SegmentTable, AForksChildHasOneOfItsOwn) {
  const auto table = SegmentTable::of_process();
  EXPECT_EQ(table, SegmentTable::of_process());
  const pid_t child = ::fork();
  if (child == 0) {
    const auto own = SegmentTable::of_process();
    ::_exit(own != table && own == SegmentTable::of_process() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SegmentTable, ReadersAndForgettersRace) {
  io::TestDirectory dir;
  io::RealFiles files;
  // Each segment's file says its number, so that a recycled descriptor shows.
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::string text(8, static_cast<char>('0' + i));
    ASSERT_TRUE(io::write_file_atomically(files, dir / std::to_string(i), as_bytes(text)));
  }
  SegmentTable table(16);
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < 2000; ++i) {
        const std::uint32_t n = (i + t) % 4;
        auto segment = table.find(kMe, SegmentId(n));
        if (!segment) {
          segment = table.insert(kMe, SegmentId(n),
                                 files.open(dir / std::to_string(n), O_RDONLY, 0).value());
        }
        if (i % 3 == 0) table.forget(kMe, SegmentId(n));
        char text[8];
        const auto got = files.pread(segment->fd.get(), std::as_writable_bytes(std::span(text)), 0);
        if (!got || *got != 8 || text[0] != static_cast<char>('0' + n)) ++wrong;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace quiver::cache
