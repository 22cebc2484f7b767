// The best division by trying all, for tests: a model of its own, written without a look at
// cache_model.cc.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "cache/policy/cache_model.h"

namespace quiver::cache::testing {

class ExhaustiveDivision {
 public:
  ExhaustiveDivision(const Demands& demands, int steps) : demands_(demands), steps_(steps) {
    double sum = 0;
    for (const auto& d : demands.datasets) {
      windows_.push_back(static_cast<double>(std::min({d.window, d.need, d.limit}).value));
      sum += windows_.back();
    }
    const double budget = static_cast<double>(demands.budget.value);
    if (sum > budget / 2) {
      for (double& window : windows_) window = std::floor(window * (budget / 2) / sum);
      sum = budget / 2;
    }
    step_ = (budget - sum) / steps;
    pinned_.resize(windows_.size());
    fastest_.resize(windows_.size());
    for (const JobDemand& job : demands.jobs) {
      fastest_[job.dataset] = std::max(fastest_[job.dataset], job.rate);
    }
  }

  // The speed of the best division whose parts beside the windows are multiples of a step.
  double best() {
    best_ = 0;
    go(0, steps_);
    return best_;
  }

  // What a job's speed is worth, summed, when so many bytes of each dataset are pinned.
  double speed(const std::vector<double>& pinned) const {
    std::vector<double> missing;
    for (std::size_t d = 0; d < pinned.size(); ++d) {
      const double need = static_cast<double>(demands_.datasets[d].need.value);
      const bool all = pinned[d] + windows_[d] >= need;
      missing.push_back(all ? 0 : 1 - pinned[d] / need);
    }
    std::vector<double> given(pinned.size());  // of the link
    for (std::size_t link = 0; link < demands_.links.size(); ++link) {
      // The water level, by bisection.
      double low = 0, high = 1e12;
      for (int k = 0; k < 50; ++k) {
        const double level = (low + high) / 2;
        double used = 0;
        for (std::size_t d = 0; d < pinned.size(); ++d) {
          if (demands_.datasets[d].link == link) used += std::min(level, missing[d] * fastest_[d]);
        }
        (used <= demands_.links[link] ? low : high) = level;
      }
      for (std::size_t d = 0; d < pinned.size(); ++d) {
        if (demands_.datasets[d].link == link) given[d] = std::min(low, missing[d] * fastest_[d]);
      }
    }
    double sum = 0, weights = 0;
    for (const JobDemand& job : demands_.jobs) {
      const double m = missing[job.dataset];
      const double rate = m == 0 ? job.rate : std::min(job.rate, given[job.dataset] / m);
      sum += job.weight * rate / job.rate;
      weights += job.weight;
    }
    return weights == 0 ? 1 : sum / weights;
  }

 private:
  void go(std::size_t d, int left) {
    if (d == pinned_.size()) {
      best_ = std::max(best_, speed(pinned_));
      return;
    }
    const auto& demand = demands_.datasets[d];
    const double most =
        static_cast<double>(std::min(demand.need, demand.limit).value) - windows_[d];
    const bool last = d + 1 == pinned_.size();
    for (int k = last ? left : 0; k <= left; ++k) {
      pinned_[d] = std::min(most, k * step_);
      go(d + 1, left - k);
      if (k * step_ >= most) return;
    }
  }

  const Demands& demands_;
  const int steps_;
  double step_ = 0, best_ = 0;
  std::vector<double> windows_, pinned_, fastest_;
};

}  // namespace quiver::cache::testing
