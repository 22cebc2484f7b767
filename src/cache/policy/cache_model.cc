#include "cache/policy/cache_model.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace quiver::cache {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

}  // namespace

std::vector<Bytes> fitted_windows(const Demands& demands) {
  std::vector<Bytes> windows;
  double sum = 0;
  for (const DatasetDemand& dataset : demands.datasets) {
    windows.push_back(std::min({dataset.window, dataset.need, dataset.limit}));
    sum += static_cast<double>(windows.back().value);
  }
  const double most = static_cast<double>(demands.budget.value) / 2;
  if (sum <= most) return windows;
  for (Bytes& window : windows) {
    window = Bytes(static_cast<std::uint64_t>(static_cast<double>(window.value) * most / sum));
  }
  return windows;
}

double missing_part(Bytes need, Bytes window, Bytes share) {
  if (share >= need) return 0;
  if (share <= window) return 1;
  return 1 - static_cast<double>((share - window).value) / static_cast<double>(need.value);
}

double fair_level(const std::vector<double>& demands, double rate) {
  // Those below the level are given all they ask for, which raises it for the others.
  double level = 0;
  for (std::optional<std::size_t> before;;) {
    double left = rate;
    std::size_t below = 0;
    for (const double demand : demands) {
      if (demand > level) continue;
      left -= demand;
      ++below;
    }
    if (below == demands.size()) return kInfinite;
    if (below == before) return level;
    before = below;
    level = std::max(level, left / static_cast<double>(demands.size() - below));
  }
}

Forecast forecast(const Demands& demands, const Division& division) {
  CHECK(division.size() == demands.datasets.size());
  Forecast out;
  out.datasets.resize(division.size());
  out.jobs.resize(demands.jobs.size());
  std::vector<double> fastest(division.size());
  for (const JobDemand& job : demands.jobs) {
    fastest[job.dataset] = std::max(fastest[job.dataset], job.rate);
  }
  const auto windows = fitted_windows(demands);
  std::vector<std::vector<double>> asked(demands.links.size());
  for (std::size_t d = 0; d < division.size(); ++d) {
    const DatasetDemand& demand = demands.datasets[d];
    DatasetForecast& its = out.datasets[d];
    its.missing = missing_part(demand.need, windows[d], division[d]);
    its.asked = its.missing * fastest[d];
    asked[demand.link].push_back(its.asked);
  }
  std::vector<double> level(demands.links.size(), kInfinite);
  for (std::size_t l = 0; l < level.size(); ++l) {
    if (demands.links[l] > 0) level[l] = fair_level(asked[l], demands.links[l]);
  }
  for (std::size_t d = 0; d < division.size(); ++d) {
    DatasetForecast& its = out.datasets[d];
    its.link = std::min(its.asked, level[demands.datasets[d].link]);
    // Not link ÷ missing: a dataset of which hardly anything is missing is fed at its jobs' rate.
    its.fed = its.missing > 0 ? level[demands.datasets[d].link] / its.missing : kInfinite;
  }
  double sum = 0, weights = 0;
  for (std::size_t j = 0; j < demands.jobs.size(); ++j) {
    const JobDemand& job = demands.jobs[j];
    if (job.rate <= 0) continue;
    out.jobs[j] = std::min(job.rate, out.datasets[job.dataset].fed);
    sum += job.weight * out.jobs[j] / job.rate;
    weights += job.weight;
  }
  if (weights > 0) out.speed = sum / weights;
  return out;
}

}  // namespace quiver::cache
