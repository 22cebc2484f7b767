// What a division of the cache costs: random datasets and jobs behind a few links. Prints one JSON
// object a line, for bench/run.py.
//
//   bench_policy DATASETS JOBS REPEATS
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "base/clock.h"
#include "cache/policy/allocation.h"

namespace quiver::cache {
namespace {

// Sizes and rates over three decades, and a cache of a third of it all: room for many, not for all.
Demands random_demands(std::size_t datasets, std::size_t jobs, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto wide = [&](double least, double most) {
    return std::exp(std::uniform_real_distribution<>(std::log(least), std::log(most))(random));
  };
  Demands demands;
  demands.links = {2e9, 1e9, 5e8};
  for (std::size_t d = 0; d < datasets; ++d) {
    const Bytes need(static_cast<std::uint64_t>(wide(1e9, 1e12)));
    demands.datasets.push_back({need, need / 50, kNoLimit, d % demands.links.size()});
    demands.budget += need / 3;
  }
  for (std::size_t j = 0; j < jobs; ++j) {
    demands.jobs.push_back({j % datasets, wide(1e6, 1e9), wide(0.3, 3)});
  }
  return demands;
}

void run(std::size_t datasets, std::size_t jobs, int repeats) {
  const RealClock clock;
  for (int k = 0; k < repeats; ++k) {
    const Demands demands = random_demands(datasets, jobs, static_cast<std::uint64_t>(k));
    const Instant started = clock.now();
    const Division division = allocate(demands);
    const double seconds = std::chrono::duration<double>(clock.now() - started).count();
    fmt::print(
        "{{\"seconds\": {:.6f}, \"speed\": {:.5f}, \"equal\": {:.5f}, \"proportional\": {:.5f}}}\n",
        seconds, forecast(demands, division).speed, forecast(demands, equal_shares(demands)).speed,
        forecast(demands, proportional_shares(demands)).speed);
  }
}

}  // namespace
}  // namespace quiver::cache

int main(int argc, char** argv) {
  if (argc != 4) return fmt::print(stderr, "usage: bench_policy DATASETS JOBS REPEATS\n"), 2;
  quiver::cache::run(std::strtoul(argv[1], nullptr, 10), std::strtoul(argv[2], nullptr, 10),
                     std::atoi(argv[3]));
  return 0;
}
