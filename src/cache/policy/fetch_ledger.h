// FetchLedger: for which job each item was fetched, and which bytes were read from the origin more
// than once in an epoch of the leader, and why.
//
// In an epoch of the leader every item that is not pinned has to be read once (promise P8). What is
// read again in that time is counted by the reason for which the copy that was there before is not
// there any more: by the first thing that happened to it since it was read.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/units.h"
#include "cache/policy/staging.h"

namespace quiver::cache {

// Why an item was read again.
enum class Again : std::uint8_t {
  kNewEpoch,     // nobody wanted it when it left; a job that is not in step began its next epoch
  kLeftStaging,  // it left the window before every job had had it: a job is out of step
  kNoRoom,       // it was evicted for want of room, or by somebody's command
  kDamaged,      // the copy was bad
  kShareMoved,   // it was pinned, and the dataset's share or its bands changed
  kStrict,       // a job with a strict order of its own, which does not lead, asked for it
};
inline constexpr std::size_t kAgainReasons = 6;

constexpr const char* name(Again reason) {
  constexpr std::array<const char*, kAgainReasons> kNames{"new_epoch", "left_staging", "no_room",
                                                          "damaged",   "share_moved",  "strict"};
  return kNames[static_cast<std::size_t>(reason)];
}

// Owned by one dataset of one daemon, lives as long as that. One thread at a time. 3 bytes an item.
class FetchLedger {
 public:
  explicit FetchLedger(std::uint32_t items) : for_whom_(items), marks_(items) {}

  // The leading job has begun another epoch. A lead that changes hands begins none: the new leader
  // goes on where it is.
  void begin_epoch();
  // Its bytes came from the origin. `strict`: for a strict job that does not lead.
  void read(ItemId id, Bytes length, bool strict);
  // They are for this job (of several entries with the same content, each).
  void brought(ItemId id, JobId job) { for_whom_[id.value] = low(job); }
  // It is given up, though it may lie there for a while.
  void left(ItemId id, Again why);
  // It will be read for the leader's next epoch, which has not begun.
  void early(ItemId id) { marks_[id.value] = 0; }
  // It is held, again.
  void kept(ItemId id) { marks_[id.value] &= kRead; }

  Bytes read_again(Again why) const { return again_[static_cast<std::size_t>(why)]; }
  // Of the words of bits `taken`, how many are set and not in `settled`, and were fetched for
  // another job. What nobody here fetched is nobody's.
  std::uint64_t shared(JobId job, const std::vector<std::uint64_t>& taken,
                       const std::vector<std::uint64_t>& settled) const;

 private:
  static constexpr std::uint8_t kRead = 0x80;  // in this epoch; below it: why it left, from 1
  // Jobs count from 1; after 65,535 of them a daemon may take one for another.
  static std::uint16_t low(JobId job) { return static_cast<std::uint16_t>(job.value); }

  std::vector<std::uint16_t> for_whom_;
  std::vector<std::uint8_t> marks_;
  std::array<Bytes, kAgainReasons> again_{};
};

}  // namespace quiver::cache
