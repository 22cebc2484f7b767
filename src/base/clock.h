// Time is passed in, so that the simulator and the fault tests run the real code.
#pragma once

#include <atomic>
#include <chrono>

namespace quiver {

using Duration = std::chrono::nanoseconds;
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;
using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;    // never goes back; may leap, as on a machine that was frozen
  virtual WallTime wall() const = 0;  // may jump either way
};

class RealClock final : public Clock {
 public:
  Instant now() const override { return std::chrono::steady_clock::now(); }
  WallTime wall() const override { return std::chrono::system_clock::now(); }
};

// Stands still until advanced. Any thread may call anything.
class ManualClock final : public Clock {
 public:
  Instant now() const override { return Instant(Duration(ns_.load())); }
  WallTime wall() const override { return WallTime(Duration(ns_.load())); }
  void advance(Duration by) { ns_.fetch_add(by.count()); }

 private:
  std::atomic<Duration::rep> ns_{1'000'000'000};
};

}  // namespace quiver
