#include "cache/origin/request_window.h"

#include <algorithm>
#include <cmath>

namespace quiver::cache {
namespace {

constexpr std::chrono::seconds kLook{1};  // a growing window wakes nobody
constexpr std::chrono::milliseconds kShortestRoundTrip{1};
constexpr double kCut = 0.5;

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

Duration duration(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

Duration took(Instant begun, Instant now) {
  return std::max<Duration>(now - begun, kShortestRoundTrip);
}

// `time` after it was cut from `from`: half of it at first, all of it after kRegrowth.
double regrown(double from, Duration time) {
  const double x = seconds(time) / seconds(RequestWindow::kRegrowth) - 1;
  return std::min(RequestWindow::kMost, from * (1 + kCut * x * x * x));
}

}  // namespace

Result<RequestWindow::Slot> RequestWindow::begin(const Waiter& waiter, std::stop_token stop) {
  Instant turn{};
  const auto free = [](const State& s) { return s.under_way < std::max(1.0, s.window); };
  const auto take = [&](State& s) {
    ++s.under_way;
    turn = std::max(clock_.now(), s.next);
    s.next = turn + pause(s);
  };
  while (!state_.wait_for(stop, kLook, free, take)) {
    if (stop.stop_requested()) return error(Code::kCancelled, "reading the origin was cancelled");
  }
  Slot slot(this, turn);
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(turn - clock_.now());
  if (wait.count() > 0 && !waiter(wait, stop)) {
    return error(Code::kCancelled, "reading the origin was cancelled");
  }
  return slot;
}

// Between the beginnings of two requests; none as long as the number of them is limit enough.
Duration RequestWindow::pause(const State& s) {
  if (s.window >= 1) return {};
  const Duration longest = kLongestPause;
  return std::min(longest, duration(seconds(s.round_trip) / s.window));
}

void RequestWindow::end(Instant begun, Outcome outcome, std::chrono::milliseconds retry_after) {
  state_.change([&](State& s) {
    const Instant now = clock_.now();
    --s.under_way;
    if (outcome == Outcome::kAnswered) answered(s, begun, now);
    if (outcome == Outcome::kThrottled) {
      throttled(s, begun, now);
      s.next = std::max(s.next, now + std::min(kLongestHold, retry_after));
    }
    s.last_end = now;
  });
}

void RequestWindow::answered(State& s, Instant begun, Instant now) {
  const Duration trip = took(begun, now);
  s.round_trip += s.round_trip == Duration{} ? trip : (trip - s.round_trip) / 8;
  if (!s.cut) {
    s.window = std::min(kMost, s.window + 1);
    return;
  }
  // Time in which nothing was asked, idle or held, proves nothing.
  s.grown += now - std::max({s.last_end, s.cut_at, begun - pause(s)});
  s.window = std::max(s.window, regrown(s.cut_from, s.grown));
}

void RequestWindow::throttled(State& s, Instant begun, Instant now) {
  if (s.cut && begun < s.cut_at) return;
  if (s.round_trip == Duration{}) s.round_trip = took(begun, now);
  s.cut = true;
  s.cut_at = now;
  s.cut_from = s.window;
  s.grown = {};
  s.window = std::max(s.window * kCut, seconds(s.round_trip) / seconds(kLongestPause));
}

}  // namespace quiver::cache
