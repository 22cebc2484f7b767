// How many requests one store bears, found out by asking it.
#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/result.h"
#include "cache/origin/retry.h"

namespace quiver::cache {

// Adaptive concurrency, as TCP has it. The window is how many requests may be under way: it starts
// small and doubles each round trip until the store first says SlowDown (503, 429). Then, and at
// each later SlowDown, it is halved, at most once per round trip: those that were sent before the
// last cut do not count again. It grows back along a cubic (RFC 9438): in kRegrowth to where it was
// cut, flat there, so that it stays near what the store bears, then ever faster, so that it is back
// soon after a store has recovered. Below one it means pauses: a quarter is one request in four
// round trips. A Retry-After holds all requests.
//
// Owns no thread; lives as long as anybody who asks this store. Any thread may call begin(), which
// waits; every slot is given back with end(), or by itself when its attempt is broken off.
// Invariant: at most max(1, window) slots are out.
class RequestWindow {
 public:
  static constexpr double kFirst = 8, kMost = 128;
  static constexpr std::chrono::milliseconds kRegrowth{5000};
  static constexpr std::chrono::milliseconds kLongestPause{5000};  // between two requests
  static constexpr std::chrono::milliseconds kLongestHold{20000};  // of a Retry-After

  explicit RequestWindow(Clock& clock) : clock_(clock) {}

  enum class Outcome { kAnswered, kThrottled, kBroken };
  class Slot {
   public:
    Slot(Slot&& other) noexcept
        : window_(std::exchange(other.window_, nullptr)), begun_(other.begun_) {}
    ~Slot() { end(Outcome::kBroken); }
    void end(Outcome outcome, std::chrono::milliseconds retry_after = {}) {
      if (RequestWindow* window = std::exchange(window_, nullptr)) {
        window->end(begun_, outcome, retry_after);
      }
    }

   private:
    friend class RequestWindow;
    Slot(RequestWindow* window, Instant begun) : window_(window), begun_(begun) {}
    RequestWindow* window_;
    Instant begun_;
  };
  // A request may be sent now. kCancelled when the stop comes first.
  Result<Slot> begin(const Waiter& waiter, std::stop_token stop);

  double window() const {
    return state_.with([](const State& s) { return s.window; });
  }

 private:
  struct State {
    double window = kFirst;
    int under_way = 0;
    bool cut = false;     // ever; until then it doubles
    Instant cut_at{};     // the last one
    double cut_from = 0;  // the window before it
    Duration grown{};     // time since then in which requests were under way
    Instant last_end{};
    Duration round_trip{};  // of answered requests, smoothed
    Instant next{};         // before it none is sent
  };

  void end(Instant begun, Outcome outcome, std::chrono::milliseconds retry_after);
  static void answered(State& s, Instant begun, Instant now);
  static void throttled(State& s, Instant begun, Instant now);
  static Duration pause(const State& s);

  Clock& clock_;
  Guarded<State> state_;
};

}  // namespace quiver::cache
