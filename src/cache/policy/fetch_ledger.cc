#include "cache/policy/fetch_ledger.h"

#include <bit>

namespace quiver::cache {

void FetchLedger::begin_epoch() {
  for (std::uint8_t& mark : marks_) mark &= static_cast<std::uint8_t>(~kRead);
}

void FetchLedger::read(ItemId id, Bytes length, bool strict) {
  std::uint8_t& mark = marks_[id.value];
  if ((mark & kRead) != 0) {
    const unsigned left = mark & ~kRead;
    // Without a trace of it, it went before it was seen to be here: there was no room.
    const Again why = strict      ? Again::kStrict
                      : left == 0 ? Again::kNoRoom
                                  : static_cast<Again>(left - 1);
    again_[static_cast<std::size_t>(why)] += length;
  }
  mark = kRead;
}

void FetchLedger::left(ItemId id, Again why) {
  std::uint8_t& mark = marks_[id.value];
  if ((mark & ~kRead) == 0) mark |= static_cast<std::uint8_t>(static_cast<unsigned>(why) + 1);
}

std::uint64_t FetchLedger::shared(JobId job, const std::vector<std::uint64_t>& taken,
                                  const std::vector<std::uint64_t>& settled) const {
  std::uint64_t count = 0;
  for (std::size_t word = 0; word < taken.size(); ++word) {
    for (std::uint64_t bits = taken[word] & ~settled[word]; bits != 0; bits &= bits - 1) {
      const std::size_t item = 64 * word + static_cast<std::size_t>(std::countr_zero(bits));
      const std::uint16_t whose = for_whom_[item];
      count += whose != 0 && whose != low(job) ? 1 : 0;
    }
  }
  return count;
}

}  // namespace quiver::cache
