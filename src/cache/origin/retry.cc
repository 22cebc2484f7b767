#include "cache/origin/retry.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace quiver::cache {

Waiter real_waiter() {
  return [](std::chrono::milliseconds time, std::stop_token stop) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, stop, time, [] { return false; });
    return !stop.stop_requested();
  };
}

Status Retrier::run(const std::function<std::optional<Failure>()>& attempt,
                    const std::function<std::uint64_t()>& progress, std::stop_token stop) {
  Instant start = clock_.now();
  std::uint64_t reached = progress();
  for (int attempts = 1;; ++attempts) {
    if (stop.stop_requested()) return error(Code::kCancelled, "reading the origin was cancelled");
    auto failure = attempt();
    if (!failure) return {};
    if (!failure->retry) return std::move(failure->error);
    if (progress() >= reached + kProgress) {
      reached = progress();
      attempts = 1;
      start = clock_.now();
    }
    const auto pause = back_off(attempts, *failure);
    const bool out_of_time = clock_.now() + pause - start > policy_.budget;
    const bool given_up =
        failure->retry != RetryClass::kThrottled && attempts >= policy_.max_attempts;
    if (given_up || out_of_time) {
      return error(failure->error.code, "{} (tried {} times)", failure->error.message, attempts);
    }
    counts_.with([&](auto& c) { ++c[static_cast<std::size_t>(*failure->retry)]; });
    if (!waiter_(pause, stop)) return error(Code::kCancelled, "reading the origin was cancelled");
  }
}

std::chrono::milliseconds Retrier::back_off(int attempts, const Failure& failure) {
  const auto ceiling = std::min(policy_.longest, policy_.base * (1 << std::min(attempts - 1, 16)));
  const auto jitter = random_.with([&](auto& random) {
    return std::uniform_int_distribution<std::int64_t>(0, ceiling.count())(random);
  });
  // The server's wish is a floor; the jitter on top keeps those who heard it apart.
  return std::min(policy_.longest, failure.retry_after + std::chrono::milliseconds(jitter));
}

}  // namespace quiver::cache
