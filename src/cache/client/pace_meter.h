// PaceMeter: how fast a loop would take items if it never waited for bytes.
#pragma once

#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "cache/view/job_board.h"

namespace quiver::cache {

// One step of the loop, from the delivery before it to its own.
struct LoopStep {
  std::uint32_t items = 0;
  Duration loop{};      // of the step, what the loop needed itself: without any wait for its batch
  Duration decoding{};  // of the batch, in whichever process; 0: it is in `loop`
  std::uint32_t workers = 0;  // that decode beside the loop
};

// Pure; one thread at a time. A step costs the loop's own time or, where workers decode beside it,
// a worker's time divided among them, if that is more. The rate is the median over groups of steps
// of items ÷ cost (the median of means: it follows a loop whose every fourth step is long, and not
// one that stopped for a minute; Lugosi and Mendelson, Mean estimation and regression under
// heavy-tailed distributions, 2019). Told as soon as its standard error is below a tenth, or when
// all groups are full.
class PaceMeter {
 public:
  void add(const LoopStep& step);
  Pace pace() const;  // of 0 items a second while it is not known well enough

 private:
  static constexpr std::uint32_t kGroup = 4;  // steps
  static constexpr std::size_t kLeastGroups = 3, kMostGroups = 16;
  static constexpr double kGoodError = 0.1;

  struct Group {
    std::uint64_t items = 0;
    std::uint32_t steps = 0;
    double loop_s = 0, decoding_s = 0;  // the latter divided among the workers
  };
  std::deque<Group> groups_;  // the last one is being filled
};

}  // namespace quiver::cache
