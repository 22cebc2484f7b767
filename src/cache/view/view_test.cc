#include "cache/view/view.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "cache/view/view_layout.h"

namespace quiver::cache {
namespace {

ViewReader reader_of(const ViewWriter& writer) {
  const io::Fd fd(::dup(writer.readers_fd()));
  return ViewReader::map(fd, writer.size()).value();
}

TEST(ViewWord, KeepsItsParts) {
  EXPECT_TRUE(rc::check([] {
    const SegmentId segment(*rc::gen::inRange(0u, kMaxSegments));
    const auto offset = *rc::gen::inRange<std::uint64_t>(0, kMaxSegmentBytes);
    const bool pinned = *rc::gen::arbitrary<bool>();
    const auto word = ViewWord::here(segment, offset, pinned);
    RC_ASSERT(word.residency() == Residency::kHere);
    RC_ASSERT(word.segment() == segment && word.offset() == offset && word.pinned() == pinned);
  }));
  EXPECT_EQ(ViewWord().residency(), Residency::kAbsent);
  EXPECT_EQ(ViewWord::near().residency(), Residency::kNear);
  EXPECT_EQ(ViewWord(~std::uint64_t{0}).residency(), Residency::kAbsent);
}

// The worked example of docs/formats/view.md.
TEST(View, GoldenBytes) {
  auto writer = ViewWriter::create(3).value();
  writer.publish(ItemId(0), ViewWord::here(SegmentId(5), 4096, true), 0x11223344);
  writer.publish(ItemId(2), ViewWord::near(), 0x55667788);
  writer.order(ItemId(1));
  writer.order(ItemId(2));
  writer.retire_until(1);
  writer.beat(Instant(Duration(1'000'000'007)));
  writer.set_counters(
      {.origin_bytes = 1, .origin_reads = 2, .origin_errors = 3, .evicted_items = 4});
  writer.notify();
  std::string bytes(writer.memory().value, '\0');
  io::RealFiles files;
  ASSERT_EQ(files.pread(writer.readers_fd(), std::as_writable_bytes(std::span(bytes)), 0).value(),
            bytes.size());
  const auto golden = io::read_file(files, QUIVER_SOURCE_DIR "/tests/vectors/view_v1.bin", 64_KiB);
  ASSERT_TRUE(golden) << golden.error().message;
  EXPECT_EQ(bytes, *golden);
}

TEST(View, ReadersSeeWhatWasPublished) {
  auto writer = ViewWriter::create(100).value();
  const auto reader = reader_of(writer);
  EXPECT_EQ(reader.size(), 100u);
  EXPECT_EQ(reader.word(ItemId(7)), ViewWord());
  writer.publish(ItemId(7), ViewWord::here(SegmentId(3), 12, false), 99);
  EXPECT_EQ(reader.word(ItemId(7)).segment(), SegmentId(3));
  EXPECT_EQ(reader.checksum(ItemId(7)), 99u);
  writer.clear(ItemId(7));
  EXPECT_EQ(reader.word(ItemId(7)), ViewWord());
  EXPECT_EQ(reader.word(ItemId(100)), ViewWord()) << "beyond the end";
  writer.beat(Instant(Duration(5)));
  EXPECT_EQ(reader.heartbeat(), Instant(Duration(5)));
  writer.set_counters({.origin_bytes = 10, .evicted_items = 3});
  EXPECT_EQ(reader.counters().origin_bytes, 10u);
  EXPECT_EQ(reader.counters().evicted_items, 3u);
  EXPECT_EQ(writer.memory(), Bytes(layout::view_size(100)));
}

TEST(View, TheRingForgetsTheOldest) {
  auto writer = ViewWriter::create(70).value();  // 128 places, of which 127 are readable
  const auto reader = reader_of(writer);
  EXPECT_EQ(reader.ordered(0), std::nullopt);
  for (std::uint32_t i = 0; i < 300; ++i) {
    EXPECT_EQ(writer.order(ItemId(i % 70)), i);
    for (const std::uint64_t back : {1, 50, 127, 128, 200}) {
      if (back > i + 1) continue;
      const auto got = reader.ordered(i + 1 - back);
      if (back < 128) {
        EXPECT_EQ(got, ItemId(static_cast<std::uint32_t>((i + 1 - back) % 70)));
      } else {
        EXPECT_EQ(got, std::nullopt);
      }
    }
  }
  EXPECT_EQ(reader.ordered(300), std::nullopt);
  writer.retire_until(250);
  writer.retire_until(10);
  EXPECT_EQ(reader.tail(), 250u);
  EXPECT_EQ(reader.head(), 300u);
}

TEST(View, WaitsForAChange) {
  auto writer = ViewWriter::create(1).value();
  const auto reader = reader_of(writer);
  const auto seen = reader.changes();
  EXPECT_FALSE(reader.wait_change(seen, std::chrono::milliseconds(5)));
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    writer.notify();
  });
  EXPECT_TRUE(reader.wait_change(seen, std::chrono::seconds(20)));
  EXPECT_NE(reader.changes(), seen);
}

// Word and checksum belong to the item, offset and segment to each other: a mixture is seen.
void expect_whole(const ViewReader& reader, ItemId id, std::atomic<std::uint64_t>& torn,
                  std::atomic<std::uint64_t>& seen) {
  const auto word = reader.word(id);
  if (word.residency() != Residency::kHere) return;
  ++seen;
  if (word.offset() != word.segment().value * std::uint64_t{7919} ||
      reader.checksum(id) != id.value + 1) {
    ++torn;
  }
}

TEST(View, NoTornWordAndNoFalsePlace) {
  constexpr std::uint32_t kItems = 60;
  auto writer = ViewWriter::create(kItems).value();
  std::atomic<std::uint64_t> torn = 0, seen = 0, ordered = 0, misplaced = 0;
  {
    std::vector<std::jthread> readers;
    for (int t = 0; t < 3; ++t) {
      readers.emplace_back([&](std::stop_token stop) {
        const auto reader = reader_of(writer);
        for (std::uint32_t i = 0; !stop.stop_requested(); ++i) {
          expect_whole(reader, ItemId(i % kItems), torn, seen);
          const auto head = reader.head();
          const std::uint64_t place = head < 63 ? 0 : head - 63 + i % 63;
          if (const auto id = reader.ordered(place)) {
            ++ordered;
            if (id->value != place * 31 % kItems) ++misplaced;
          }
        }
      });
    }
    for (std::uint32_t i = 0; i < 200'000 || (seen < 1000 && i < 100'000'000); ++i) {
      const SegmentId segment(i * 2654435761u % kMaxSegments);
      const ItemId id(i % kItems);
      if (segment.value * std::uint64_t{7919} < kMaxSegmentBytes) {
        writer.publish(id, ViewWord::here(segment, segment.value * std::uint64_t{7919}, i % 2 == 0),
                       id.value + 1);
      }
      if (i % 3 == 0) writer.clear(ItemId((i / 3) % kItems));
      writer.order(ItemId(static_cast<std::uint32_t>(writer.head() * 31 % kItems)));
    }
  }
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(misplaced, 0u);
  EXPECT_GT(seen, 0u);
  EXPECT_GT(ordered, 0u);
}

TEST(View, AnotherProcessReads) {
  auto writer = ViewWriter::create(10).value();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto reader = reader_of(writer);
    std::uint32_t seen = reader.changes();
    for (int i = 0; i < 100 && reader.word(ItemId(9)) == ViewWord(); ++i) {
      static_cast<void>(reader.wait_change(seen, std::chrono::milliseconds(100)));
      seen = reader.changes();
    }
    ::_exit(reader.word(ItemId(9)).offset() == 77 && reader.checksum(ItemId(9)) == 5 ? 0 : 1);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  writer.publish(ItemId(9), ViewWord::here(SegmentId(1), 77, true), 5);
  writer.notify();
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

Result<ViewReader> map_bytes(const std::string& bytes, std::uint32_t items) {
  io::RealFiles files;
  const io::Fd fd = io::make_client_memory("test", bytes.size()).value();
  EXPECT_TRUE(files.pwrite(fd.get(), as_bytes(bytes), 0));
  return ViewReader::map(fd, items);
}

TEST(View, GarbageIsAnError) {
  auto writer = ViewWriter::create(3).value();
  std::string good(writer.memory().value, '\0');
  io::RealFiles files;
  ASSERT_TRUE(files.pread(writer.readers_fd(), std::as_writable_bytes(std::span(good)), 0));
  EXPECT_TRUE(map_bytes(good, 3));
  EXPECT_EQ(map_bytes(good, 4).error().code, Code::kInvalid);
  for (std::size_t size : {std::size_t{1}, std::size_t{255}, good.size() - 1}) {
    EXPECT_EQ(map_bytes(good.substr(0, size), 3).error().code, Code::kInvalid) << size;
  }
  std::string newer = good;
  newer[layout::kVersion] = 2;
  EXPECT_EQ(map_bytes(newer, 3).error().code, Code::kVersion);
  EXPECT_EQ(map_bytes(std::string(good.size(), 'x'), 3).error().code, Code::kInvalid);
  std::string wild = good;  // a right header before nonsense
  std::fill(wild.begin() + layout::kWords, wild.end(), '\xff');
  std::memset(wild.data() + layout::kHead, 0x20, 1);
  const auto reader = map_bytes(wild, 3);
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->word(ItemId(0)).residency(), Residency::kAbsent);
  EXPECT_EQ(reader->ordered(5), std::nullopt) << "no such item";
}

}  // namespace
}  // namespace quiver::cache
