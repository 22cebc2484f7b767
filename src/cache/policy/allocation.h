// How a cache's budget divides between datasets: where its bytes save the jobs the most time. Pure.
//
// It maximises the weighted mean of rate ÷ own rate over all jobs, as cache_model.h has the rates.
// A job's rate is convex in its dataset's share, up to the share from which on the job computes as
// fast as it can. So the best division lies at corners: apart from one or two, each dataset has no
// more than its window, or what feeds one of its jobs in full, or all it needs. Between the corners
// of many datasets it is a knapsack; see allocation.cc for how it is solved.
//
// A job's part of the sum is at most its weight, whatever it says of its rate: so what a job takes
// from all others together, in weighted speed, is at most its weight.
#pragma once

#include <optional>

#include "base/clock.h"
#include "cache/policy/cache_model.h"

namespace quiver::cache {

// Each share is at least the (fitted) window of its dataset, at most its need and its limit; none
// of the budget is left while somebody could use it. A dataset of which no job's rate is known, or
// not that of its link, gets the part that it had if all were equal; jobs of unknown rate beside
// others of their dataset count as none. The rest divides so that the forecast is within 1 % of the
// best one that there is (for up to 5 datasets, as tested), and never below that of equal_shares()
// or proportional_shares().
Division allocate(const Demands& demands);

// What one of them cannot use flows to the others.
Division equal_shares(const Demands& demands);
Division proportional_shares(const Demands& demands);  // to what they need

// The same division within a budget that is a little smaller: the excess goes from the largest.
Division trimmed(Division division, Bytes budget);

// When a new division is worth the bytes that have to move. Rates are estimates that wander: what
// looks better under one look at them must look better under those of the next seconds too.
// For one thread. When datasets, jobs or the budget change the caller divides at once and resets.
class Adoption {
 public:
  static constexpr double kGain = 0.01;                      // of the forecast
  static constexpr Duration kFor = std::chrono::seconds(4);  // it has to last so long

  // The division to adopt now, if any. To be called about once a second.
  std::optional<Division> look(const Demands& demands, const Division& present, Instant now);
  void reset() { candidate_.reset(); }

 private:
  struct Candidate {
    Division division;
    Instant since;
  };
  std::optional<Candidate> candidate_;
};

}  // namespace quiver::cache
