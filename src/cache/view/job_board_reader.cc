#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "cache/view/board_layout.h"
#include "cache/view/job_board.h"
#include "cache/view/view_layout.h"

namespace quiver::cache {

using namespace layout;

namespace {

// A job begins an epoch in milliseconds and rests for seconds: who changes it more often than this
// while we look is not telling us anything.
constexpr int kMaxLooks = 4;

template <class T>
T load(ByteSpan bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

Status read_exactly(io::Files& files, int fd, MutableByteSpan out, std::uint64_t offset) {
  const std::size_t n = TRY(files.pread(fd, out, offset));
  if (n != out.size()) return error(Code::kCorrupt, "the job board is cut short");
  return {};
}

// Of the half that `sequence` uses.
Result<std::uint64_t> sequence_in(io::Files& files, int fd, std::uint32_t items,
                                  std::uint64_t sequence) {
  std::array<std::byte, 8> bytes{};
  const std::size_t at = half_at(items, sequence) + kSequence;
  if (Status ok = read_exactly(files, fd, bytes, at); !ok) return std::move(ok).error();
  return load<std::uint64_t>(bytes, 0);
}

Status parse_header(ByteSpan header, std::uint32_t items, BoardCopy& copy) {
  const auto version = load<std::uint32_t>(header, kVersion);
  if (load<std::uint64_t>(header, kMagic) == kBoardMagic && version != kBoardVersion) {
    return error(Code::kVersion,
                 "the job board is of version {}, this daemon reads {}; use the same version of "
                 "Quiver in the job and the daemon",
                 version, kBoardVersion);
  }
  if (load<std::uint64_t>(header, kMagic) != kBoardMagic ||
      load<std::uint32_t>(header, kBoardItems) != items) {
    return error(Code::kCorrupt, "the job board is not one of {} items", items);
  }
  copy.pace = {std::bit_cast<double>(load<std::uint64_t>(header, kRate)),
               load<std::uint32_t>(header, kRateSteps),
               std::bit_cast<double>(load<std::uint64_t>(header, kRateError))};
  copy.batch_size = load<std::uint32_t>(header, kBatch);
  if (copy.batch_size == 0) copy.batch_size = 1;  // no pace was set yet
  for (const double number : {copy.pace.items_per_second, copy.pace.error}) {
    if (!std::isfinite(number) || number < 0) {
      return error(Code::kCorrupt, "the job board's rate is no number");
    }
  }
  std::array<std::uint64_t, kJobCounterFields> c{};
  std::memcpy(c.data(), header.data() + kJobCounters, sizeof c);
  copy.counters = {c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
  return {};
}

void clear_beyond(std::vector<std::uint64_t>& words, std::uint32_t items) {
  if (items % 64 != 0) words.back() &= (std::uint64_t{1} << items % 64) - 1;
}

Status parse_half(ByteSpan half, std::uint32_t items, BoardCopy& copy) {
  const auto flags = load<std::uint32_t>(half, kFlags);
  copy.epoch = {.epoch = load<std::uint64_t>(half, kEpoch),
                .order_seed = load<std::uint64_t>(half, kOrderSeed),
                .strict = (flags & kStrict) != 0,
                .shuffled = (flags & kShuffled) != 0,
                .active = (flags & kActive) != 0,
                .listed = (flags & kListed) != 0,
                .world = load<std::uint32_t>(half, kWorld),
                .rank = load<std::uint32_t>(half, kRank),
                .part = std::min(items, load<std::uint32_t>(half, kPart))};
  if (flags > (kStrict | kShuffled | kActive | kListed) || copy.epoch.rank >= copy.epoch.world) {
    return error(Code::kCorrupt, "the job board has a rank or flags that cannot be");
  }
  const std::size_t words = board_words(items);
  copy.settled.resize(words);
  copy.taken.resize(words);
  if (words == 0) return {};
  std::memcpy(copy.settled.data(), half.data() + kHalfHeader, 8 * words);
  std::memcpy(copy.taken.data(), half.data() + kHalfHeader + 8 * words, 8 * words);
  clear_beyond(copy.settled, items);
  clear_beyond(copy.taken, items);
  return {};
}

}  // namespace

Result<std::optional<BoardCopy>> read_job_board(io::Files& files, int fd, std::uint32_t items) {
  std::array<std::byte, kBoardHeader> header{};
  std::vector<std::byte> half(half_size(items));
  for (int look = 0; look < kMaxLooks; ++look) {
    if (Status ok = read_exactly(files, fd, header, 0); !ok) return std::move(ok).error();
    if (load<std::uint64_t>(header, kMagic) == 0) return std::optional<BoardCopy>();
    BoardCopy copy;
    if (Status ok = parse_header(header, items, copy); !ok) return std::move(ok).error();
    const std::uint64_t even = TRY(sequence_in(files, fd, items, 0));
    const std::uint64_t odd = TRY(sequence_in(files, fd, items, 1));
    if (even == 0 && odd == 0) {
      // Before the first begin, or in the midst of it.
      return std::optional<BoardCopy>();
    }
    const std::uint64_t newest = odd > even ? 1 : 0;
    copy.sequence = std::max(even, odd);
    if (Status ok = read_exactly(files, fd, half, half_at(items, newest)); !ok) {
      return std::move(ok).error();
    }
    const std::uint64_t after = TRY(sequence_in(files, fd, items, newest));
    if (after != copy.sequence) continue;
    if (Status ok = parse_half(half, items, copy); !ok) return std::move(ok).error();
    return std::optional<BoardCopy>(std::move(copy));
  }
  return error(Code::kCorrupt, "the job board changes its epoch while it is read");
}

Result<std::optional<std::vector<std::uint64_t>>> read_taken(io::Files& files, int fd,
                                                             std::uint32_t items,
                                                             std::uint64_t sequence) {
  using Taken = std::optional<std::vector<std::uint64_t>>;
  std::vector<std::uint64_t> words(board_words(items));
  const std::size_t at = half_at(items, sequence) + kHalfHeader + 8 * words.size();
  if (TRY(sequence_in(files, fd, items, sequence)) != sequence) return Taken();
  if (Status ok = read_exactly(files, fd, std::as_writable_bytes(std::span(words)), at); !ok) {
    return std::move(ok).error();
  }
  if (TRY(sequence_in(files, fd, items, sequence)) != sequence) return Taken();
  clear_beyond(words, items);
  return Taken(std::move(words));
}

}  // namespace quiver::cache
