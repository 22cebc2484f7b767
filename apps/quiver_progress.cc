#include "quiver_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace quiver {
namespace {

constexpr Duration kBarEvery = std::chrono::milliseconds(100);
constexpr Duration kLineEvery = std::chrono::seconds(1);

}  // namespace

Progress::Progress(const Clock& clock, std::string what, bool quiet)
    : clock_(clock),
      what_(std::move(what)),
      quiet_(quiet),
      terminal_(::isatty(STDERR_FILENO) != 0),
      next_(terminal_ ? clock.now() : clock.now() + kLineEvery) {}

void Progress::show(std::uint64_t done, std::uint64_t total, const std::string& detail) {
  const Instant now = clock_.now();
  const bool last = total != 0 && done >= total;
  if (quiet_ || (last && finished_) || (now < next_ && !last)) return;
  finished_ = last;
  next_ = now + (terminal_ ? kBarEvery : kLineEvery);
  const double part =
      total == 0 ? 0 : static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  const std::string share = total == 0 ? "" : fmt::format("{:.0f} % ", std::floor(100 * part));
  if (terminal_) {
    constexpr int kWidth = 30;
    const int full = static_cast<int>(part * kWidth);
    fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:>6}{}\033[K", what_, "", full, "", kWidth - full,
               share, detail);
    open_ = true;
  } else {
    fmt::print(stderr, "{}: {}{}\n", what_, share, detail);
  }
  std::fflush(stderr);
}

void Progress::finish() {
  if (open_) fmt::print(stderr, "\n");
  open_ = false;
}

}  // namespace quiver
