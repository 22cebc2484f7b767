// When a failed request is tried again, and how long to wait before.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <stop_token>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/result.h"
#include "cache/origin/origin.h"

namespace quiver::cache {

// One attempt that failed. Without a class it is final.
struct Failure {
  Error error;
  std::optional<RetryClass> retry = {};
  std::chrono::milliseconds retry_after{0};  // as the server asked, 0: it did not
};

struct RetryPolicy {
  int max_attempts =
      6;  // that failed; a store that asks for patience gets it until the budget ends
  std::chrono::milliseconds budget{60000};   // from the first attempt, or from the last progress
  std::chrono::milliseconds base{100};       // the first back-off is drawn from [0, base]
  std::chrono::milliseconds longest{20000};  // of one back-off, Retry-After included
};

// Waits; false when the stop came first.
using Waiter = std::function<bool(std::chrono::milliseconds, std::stop_token)>;
Waiter real_waiter();

// Runs attempts until one succeeds, one fails for good, or attempts or budget are used up. Any
// thread may call run(); threads share only the random numbers and the counts. Exponential back-off
// with full jitter, so that readers that failed together do not come back together.
class Retrier {
 public:
  Retrier(RetryPolicy policy, Clock& clock, std::uint64_t seed, Waiter waiter)
      : policy_(policy), clock_(clock), waiter_(std::move(waiter)), random_(seed) {}

  // `attempt` is nothing on success. A `progress` that grew by at least kProgress since the last
  // failure starts attempts and budget anew: a long transfer may break often, a dead one may not.
  static constexpr std::uint64_t kProgress = 64 << 10;
  Status run(const std::function<std::optional<Failure>()>& attempt,
             const std::function<std::uint64_t()>& progress, std::stop_token stop);

  std::array<std::uint64_t, kRetryClasses> counts() const {
    return counts_.with([](const auto& c) { return c; });
  }

 private:
  std::chrono::milliseconds back_off(int attempts, const Failure& failure);

  const RetryPolicy policy_;
  Clock& clock_;
  const Waiter waiter_;
  Guarded<std::mt19937_64> random_;
  Guarded<std::array<std::uint64_t, kRetryClasses>> counts_;
};

}  // namespace quiver::cache
