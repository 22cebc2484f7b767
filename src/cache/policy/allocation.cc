#include "cache/policy/allocation.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "cache/policy/share_search.h"

namespace quiver::cache {

namespace {

double to_double(Bytes bytes) {
  return static_cast<double>(bytes.value);
}

// The budget divides in proportion to `parts`, between a least and a most for each.
std::vector<double> divide(double budget, const std::vector<double>& parts,
                           const std::vector<double>& least, const std::vector<double>& most) {
  // At the level t each has clamp(t · part): the sum rises with t, so bisection finds it.
  const auto at = [&](double t) {
    std::vector<double> out(parts.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = std::min(most[i], std::max(least[i], t * parts[i]));
    }
    return out;
  };
  const auto sum = [](const std::vector<double>& all) {
    return std::accumulate(all.begin(), all.end(), 0.0);
  };
  if (sum(most) <= budget) return most;
  double low = 0, high = 1;
  while (sum(at(high)) < budget) high *= 2;
  for (int k = 0; k < 100; ++k)
    (sum(at((low + high) / 2)) <= budget ? low : high) = (low + high) / 2;
  return at(low);
}

struct Bounds {
  std::vector<double> least, most;
};

Bounds bounds_of(const Demands& demands) {
  Bounds out;
  const auto windows = fitted_windows(demands);
  for (std::size_t d = 0; d < demands.datasets.size(); ++d) {
    const DatasetDemand& demand = demands.datasets[d];
    out.most.push_back(to_double(std::min(demand.need, demand.limit)));
    out.least.push_back(to_double(windows[d]));
  }
  return out;
}

std::vector<double> equal_parts(const Demands& demands, const Bounds& bounds) {
  const std::vector<double> parts(demands.datasets.size(), 1.0);
  return divide(to_double(demands.budget), parts, bounds.least, bounds.most);
}

std::vector<double> proportional_parts(const Demands& demands, const Bounds& bounds) {
  std::vector<double> parts;
  for (const DatasetDemand& dataset : demands.datasets) parts.push_back(to_double(dataset.need));
  return divide(to_double(demands.budget), parts, bounds.least, bounds.most);
}

// Whole bytes. The few that are left over go first to whom they complete.
Division rounded(const Demands& demands, const std::vector<double>& shares) {
  Division out;
  Bytes left = demands.budget;
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  const auto lacks = [&](std::size_t d) {
    return std::min(demands.datasets[d].need, demands.datasets[d].limit) - out[d];
  };
  for (std::size_t d = 0; d < shares.size(); ++d) {
    const DatasetDemand& demand = demands.datasets[d];
    // A hundredth of a byte covers what sums and differences of doubles are off by.
    const Bytes share(static_cast<std::uint64_t>(std::max(0.0, shares[d] + 0.01)));
    out.push_back(std::min({share, demand.need, demand.limit, left}));
    left -= out[d];
  }
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return lacks(a) < lacks(b); });
  for (const std::size_t d : order) {
    const Bytes more = std::min(left, lacks(d));
    out[d] += more;
    left -= more;
  }
  return out;
}

ShareSeeker make_seeker(const Demands& demands, const Bounds& bounds, std::size_t d,
                        std::vector<std::pair<double, double>> jobs) {
  ShareSeeker seeker;
  seeker.link = demands.datasets[d].link;
  seeker.need = to_double(demands.datasets[d].need);
  seeker.least = seeker.window = bounds.least[d];
  seeker.most = bounds.most[d];
  std::sort(jobs.begin(), jobs.end());
  seeker.full.push_back(0);
  for (const auto& [rate, weight] : jobs) {
    seeker.rates.push_back(rate);
    seeker.full.push_back(seeker.full.back() + weight);
  }
  seeker.part.resize(jobs.size() + 1);
  for (std::size_t k = jobs.size(); k-- > 0;) {
    seeker.part[k] = seeker.part[k + 1] + jobs[k].second / jobs[k].first;
  }
  return seeker;
}

}  // namespace

Division equal_shares(const Demands& demands) {
  return rounded(demands, equal_parts(demands, bounds_of(demands)));
}

Division proportional_shares(const Demands& demands) {
  return rounded(demands, proportional_parts(demands, bounds_of(demands)));
}

Division allocate(const Demands& demands) {
  const std::size_t n = demands.datasets.size();
  std::vector<std::vector<std::pair<double, double>>> jobs(n);
  for (const JobDemand& job : demands.jobs) {
    CHECK(job.dataset < n && job.weight > 0);
    if (job.rate > 0) jobs[job.dataset].emplace_back(job.rate, job.weight);
  }
  const Bounds bounds = bounds_of(demands);
  std::vector<double> shares = equal_parts(demands, bounds);
  std::vector<ShareSeeker> seekers;
  std::vector<std::size_t> sought;
  std::vector<double> equal;
  double budget = to_double(demands.budget);
  for (std::size_t d = 0; d < n; ++d) {
    if (jobs[d].empty() || demands.links[demands.datasets[d].link] <= 0) {
      budget -= shares[d];
      continue;
    }
    seekers.push_back(make_seeker(demands, bounds, d, std::move(jobs[d])));
    sought.push_back(d);
    equal.push_back(shares[d]);
  }
  if (!sought.empty()) {
    std::vector<std::vector<double>> starts{std::move(equal)};
    if (sought.size() == n) starts.push_back(proportional_parts(demands, bounds));
    const auto found = search_shares(std::move(seekers), demands.links, budget, std::move(starts));
    for (std::size_t i = 0; i < found.size(); ++i) shares[sought[i]] = found[i];
  }
  return rounded(demands, shares);
}

Division trimmed(Division division, Bytes budget) {
  Bytes sum;
  for (const Bytes share : division) sum += share;
  while (sum > budget) {
    Bytes& largest = *std::max_element(division.begin(), division.end());
    const Bytes less = std::min(largest, sum - budget);
    largest -= less;
    sum -= less;
  }
  return division;
}

std::optional<Division> Adoption::look(const Demands& demands, const Division& present,
                                       Instant now) {
  const auto better = [&, least = forecast(demands, present).speed *
                                  (1 + kGain)](const Division& division) {
    return forecast(demands, division).speed >= least;
  };
  if (candidate_ && better(candidate_->division)) {
    if (now - candidate_->since < kFor) return std::nullopt;
    candidate_.reset();
    return allocate(demands);
  }
  candidate_.reset();
  Division found = allocate(demands);
  if (better(found)) candidate_ = {std::move(found), now};
  return std::nullopt;
}

}  // namespace quiver::cache
