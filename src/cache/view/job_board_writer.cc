#include <array>
#include <bit>

#include "base/check.h"
#include "cache/view/board_layout.h"
#include "cache/view/job_board.h"
#include "cache/view/view_layout.h"

namespace quiver::cache {

using namespace layout;

Result<io::Fd> make_job_board(std::uint32_t items) {
  return io::make_client_memory("quiver-job", board_size(items));
}

Bytes job_board_memory(std::uint32_t items) {
  return Bytes(board_size(items));
}

Result<JobBoardWriter> JobBoardWriter::map(const io::Fd& fd, std::uint32_t items) {
  JobBoardWriter board;
  auto memory = io::Mapping::map(fd.get(), board_size(items), true);
  if (!memory) return std::move(memory).error().context("mapping the job board");
  board.memory_ = std::move(*memory);
  board.items_ = items;
  std::byte* m = board.memory_.data();
  for (const std::size_t parity : {0, 1}) {
    const auto s = u64(m, half_at(items, parity) + kSequence).load(std::memory_order_relaxed);
    if (s > board.sequence_) board.sequence_ = s;
  }
  u32(m, kVersion).store(kBoardVersion, std::memory_order_relaxed);
  u32(m, kBoardItems).store(items, std::memory_order_relaxed);
  u64(m, kMagic).store(kBoardMagic, std::memory_order_release);
  return board;
}

void JobBoardWriter::begin(const BoardEpoch& epoch, const std::vector<std::uint64_t>& settled,
                           const std::vector<std::uint64_t>& taken) {
  const std::size_t words = board_words(items_);
  CHECK(settled.size() == words && taken.size() == words);
  std::byte* m = memory_.data();
  const std::size_t half = half_at(items_, ++sequence_);
  // Release throughout: nothing of the new epoch is seen before the zero.
  u64(m, half + kSequence).store(0, std::memory_order_release);
  u64(m, half + kEpoch).store(epoch.epoch, std::memory_order_release);
  u64(m, half + kOrderSeed).store(epoch.order_seed, std::memory_order_release);
  u32(m, half + kWorld).store(epoch.world, std::memory_order_release);
  u32(m, half + kRank).store(epoch.rank, std::memory_order_release);
  const std::uint32_t flags = (epoch.strict ? kStrict : 0) | (epoch.shuffled ? kShuffled : 0) |
                              (epoch.active ? kActive : 0) | (epoch.listed ? kListed : 0);
  u32(m, half + kFlags).store(flags, std::memory_order_release);
  u32(m, half + kPart).store(epoch.part, std::memory_order_release);
  for (std::size_t i = 0; i < words; ++i) {
    u64(m, half + kHalfHeader + 8 * i).store(settled[i], std::memory_order_release);
    u64(m, half + kHalfHeader + 8 * (words + i)).store(taken[i], std::memory_order_release);
  }
  u64(m, half + kSequence).store(sequence_, std::memory_order_release);
}

void JobBoardWriter::take(ItemId id) {
  CHECK(sequence_ != 0 && id.value < items_);
  const std::size_t taken = half_at(items_, sequence_) + kHalfHeader + 8 * board_words(items_);
  auto word = u64(memory_.data(), taken + 8 * (id.value / 64));
  // One thread writes, so this is no race between writers.
  word.store(word.load(std::memory_order_relaxed) | std::uint64_t{1} << id.value % 64,
             std::memory_order_release);
}

void JobBoardWriter::set_pace(const Pace& pace, std::uint32_t batch_size) {
  std::byte* m = memory_.data();
  u64(m, kRate).store(std::bit_cast<std::uint64_t>(pace.items_per_second),
                      std::memory_order_relaxed);
  u32(m, kBatch).store(batch_size, std::memory_order_relaxed);
  u32(m, kRateSteps).store(pace.steps, std::memory_order_relaxed);
  u64(m, kRateError).store(std::bit_cast<std::uint64_t>(pace.error), std::memory_order_relaxed);
}

void JobBoardWriter::set_counters(const JobCounters& c) {
  const std::array<std::uint64_t, kJobCounterFields> fields{
      c.pinned, c.staged, c.missed,         c.direct,
      c.bytes,  c.steps,  c.waited_link_ns, c.waited_decode_ns};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    u64(memory_.data(), kJobCounters + 8 * i).store(fields[i], std::memory_order_relaxed);
  }
}

void JobBoardWriter::end() {
  if (sequence_ == 0) return;
  auto flags = u32(memory_.data(), half_at(items_, sequence_) + kFlags);
  flags.store(flags.load(std::memory_order_relaxed) & ~kActive, std::memory_order_release);
}

}  // namespace quiver::cache
