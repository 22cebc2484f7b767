#include "cache/client/pace_meter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace quiver::cache {
namespace {

constexpr double kLeastSeconds = 1e-6;  // of a step: a rate is large, and never infinite

double seconds(Duration d) {
  return std::chrono::duration<double>(std::max(d, Duration(0))).count();
}

// Of sorted values; between two of them in proportion.
double quantile(const std::vector<double>& sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

void PaceMeter::add(const LoopStep& step) {
  if (groups_.empty() || groups_.back().steps == kGroup) {
    groups_.emplace_back();
    if (groups_.size() > kMostGroups + 1) groups_.pop_front();
  }
  Group& group = groups_.back();
  ++group.steps;
  group.items += step.items;
  group.loop_s += std::max(seconds(step.loop), kLeastSeconds);
  if (step.workers != 0) group.decoding_s += seconds(step.decoding) / step.workers;
}

Pace PaceMeter::pace() const {
  std::vector<double> rates;
  for (const Group& group : groups_) {
    if (group.steps < kGroup) continue;
    rates.push_back(static_cast<double>(group.items) / std::max(group.loop_s, group.decoding_s));
  }
  if (rates.size() < kLeastGroups) return {};
  std::sort(rates.begin(), rates.end());
  const double median = quantile(rates, 0.5);
  if (median <= 0) return {};
  // Of a median of normal values: √(π/2) σ/√n, with σ from the quartiles.
  const double sigma = (quantile(rates, 0.75) - quantile(rates, 0.25)) / 1.349;
  const double error = 1.2533 * sigma / std::sqrt(static_cast<double>(rates.size())) / median;
  if (error > kGoodError && rates.size() < kMostGroups) return {};
  return {median, static_cast<std::uint32_t>(rates.size()) * kGroup, error};
}

}  // namespace quiver::cache
