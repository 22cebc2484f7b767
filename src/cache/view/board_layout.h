// Where things lie in a job board: shared by both sides, frozen by docs/formats/job_board.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quiver::cache::layout {

inline constexpr std::uint64_t kBoardMagic = 0x0044'5242'5652'5651;  // "QVRVBRD\0"
inline constexpr std::uint32_t kBoardVersion = 2;

inline constexpr std::size_t kBoardHeader = 192;
inline constexpr std::size_t kBoardItems = 12, kRate = 16, kBatch = 24, kRateSteps = 28,
                             kRateError = 32;
// What was delivered, in the order of JobCounters.
inline constexpr std::size_t kJobCounters = 64, kJobCounterFields = 8;

// A half: its header, then the settled words, then the taken words.
inline constexpr std::size_t kHalfHeader = 64;
inline constexpr std::size_t kSequence = 0, kEpoch = 8, kOrderSeed = 16, kWorld = 24, kRank = 28,
                             kFlags = 32, kPart = 36;
inline constexpr std::uint32_t kStrict = 1, kShuffled = 2, kActive = 4, kListed = 8;

constexpr std::size_t board_words(std::uint32_t items) {
  return (std::size_t{items} + 63) / 64;
}
constexpr std::size_t half_size(std::uint32_t items) {
  return kHalfHeader + 16 * board_words(items);
}
constexpr std::size_t half_at(std::uint32_t items, std::uint64_t sequence) {
  return kBoardHeader + (sequence & 1) * half_size(items);
}
constexpr std::size_t board_size(std::uint32_t items) {
  return kBoardHeader + 2 * half_size(items);
}

}  // namespace quiver::cache::layout
