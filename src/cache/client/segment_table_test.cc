#include "cache/client/segment_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <thread>

#include "io/test_directory.h"

namespace quiver::cache {
namespace {

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}
io::Fd some_fd() {
  return io::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

TEST(SegmentTable, ADescriptorStaysOpenWhileAReadUsesIt) {
  SegmentTable table(16);
  auto held = table.insert(SegmentId(1), some_fd());
  const int number = held->fd.get();
  table.forget(SegmentId(1));
  EXPECT_EQ(table.find(SegmentId(1)), nullptr);
  EXPECT_TRUE(is_open(number));
  held.reset();
  EXPECT_FALSE(is_open(number));
}

TEST(SegmentTable, TheFirstOfTwoDescriptorsWins) {
  SegmentTable table(16);
  const auto first = table.insert(SegmentId(1), some_fd());
  EXPECT_EQ(table.insert(SegmentId(1), some_fd()), first);
  EXPECT_EQ(table.find(SegmentId(1)), first);
}

TEST(SegmentTable, IsBoundedAndDropsOneThatWasNotUsed) {
  SegmentTable table(32);  // two in each of its sixteen parts
  table.insert(SegmentId(0), some_fd());
  table.insert(SegmentId(16), some_fd());
  table.insert(SegmentId(32), some_fd());  // the marks of those looked at are cleared
  EXPECT_EQ(table.size(), 2u);
  ASSERT_NE(table.find(SegmentId(32)), nullptr);
  table.insert(SegmentId(48), some_fd());
  EXPECT_NE(table.find(SegmentId(32)), nullptr);  // used since
  for (std::uint32_t i = 0; i < 1000; ++i) table.insert(SegmentId(i), some_fd());
  EXPECT_EQ(table.size(), 32u);
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
        auto segment = table.find(SegmentId(n));
        if (!segment) {
          segment =
              table.insert(SegmentId(n), files.open(dir / std::to_string(n), O_RDONLY, 0).value());
        }
        if (i % 3 == 0) table.forget(SegmentId(n));
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
