// What a division of the cache gives: the rates of jobs over datasets that share links. Pure.
//
// The jobs over one dataset co-operate, so one read serves them all: with the part m of a dataset
// missing, it asks its link for m × the rate of its fastest job. A link is shared max-min between
// the datasets behind it. With b of the link, all jobs of the dataset are fed b/m, and each runs at
// min(its own rate, b/m).
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "base/units.h"

namespace quiver::cache {

inline constexpr Bytes kNoLimit = Bytes(std::numeric_limits<std::uint64_t>::max());

struct DatasetDemand {
  Bytes need{};           // what all of it would occupy
  Bytes window{};         // of its share: for what is staged, while not all of it is here
  Bytes limit{kNoLimit};  // the most that it may have
  std::size_t link = 0;
};

struct JobDemand {
  std::size_t dataset = 0;
  double rate = 0;    // bytes/s that it would compute if it never waited; 0: not known
  double weight = 1;  // above 0
};

struct Demands {
  Bytes budget{};
  std::vector<DatasetDemand> datasets{};
  std::vector<JobDemand> jobs{};
  std::vector<double> links{};  // bytes/s; 0: not known
};

// The share of each dataset, in the order of the demands.
using Division = std::vector<Bytes>;

// The windows, cut in proportion where together they are more than half the budget.
std::vector<Bytes> fitted_windows(const Demands& demands);

// The part of a dataset that a share leaves to the link. A share that holds all needs no window.
double missing_part(Bytes need, Bytes window, Bytes share);

struct DatasetForecast {
  double missing = 1;  // part of it that is read in each epoch
  double asked = 0;    // bytes/s of its link, if that gave all
  double link = 0;     // bytes/s that it gets
  double fed = 0;      // bytes/s that reach its jobs; infinite when nothing is missing
};

struct Forecast {
  std::vector<DatasetForecast> datasets;
  std::vector<double> jobs;  // bytes/s; 0 where it is not known
  double speed = 1;  // weighted mean of rate ÷ own rate, of the jobs whose rate is known; 1 of none
};

// Links that are not known give what they are asked for; so do jobs that are not known ask nothing.
Forecast forecast(const Demands& demands, const Division& division);

// Max-min: the level at which demands are cut so that their sum is `rate`; infinite when they all
// fit.
double fair_level(const std::vector<double>& demands, double rate);

}  // namespace quiver::cache
