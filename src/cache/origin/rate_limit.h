// A limit on bytes per second, shared by all readers of one server.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/units.h"

namespace quiver::cache {

// A token bucket kept as the instant at which everything granted so far is paid for. Readers whose
// limits differ share its time: each pays for its bytes at its own rate, so together they get no
// more than the fastest of them alone. Any thread may call; it never waits itself, so a test can
// run it on a clock that stands. Invariant: over any interval at most rate × (interval + kBurst)
// bytes are granted, plus one request.
class RateLimit {
 public:
  static constexpr std::chrono::milliseconds kBurst{50};

  explicit RateLimit(Clock& clock) : clock_(clock) {}

  // How long to wait before `bytes` may be handled. 0 bytes/s is no limit.
  Duration reserve(Bytes bytes, Bytes per_second) {
    if (per_second.value == 0) return {};
    const auto cost = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
        static_cast<double>(bytes.value) / static_cast<double>(per_second.value)));
    const Instant now = clock_.now();
    const Instant turn = paid_until_.with([&](Instant& paid_until) {
      paid_until = std::max(paid_until, now - Duration(kBurst)) + cost;
      return paid_until;
    });
    return std::max(Duration{}, turn - now);
  }

 private:
  Clock& clock_;
  Guarded<Instant> paid_until_;
};

}  // namespace quiver::cache
