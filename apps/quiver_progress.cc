#include "quiver_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace quiver {

Progress::Progress(const Clock& clock, std::string what, bool quiet)
    : clock_(clock),
      what_(std::move(what)),
      quiet_(quiet),
      terminal_(::isatty(STDERR_FILENO) != 0) {}

void Progress::show(std::uint64_t done, std::uint64_t total, const std::string& detail) {
  const Instant now = clock_.now();
  if (quiet_ || (now < next_ && done != total)) return;
  next_ = now + (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(1000));
  const double part =
      total == 0 ? 0 : static_cast<double>(done) / static_cast<double>(std::max(total, done));
  if (terminal_) {
    constexpr int kWidth = 30;
    const int full = static_cast<int>(part * kWidth);
    fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f} % {}\033[K", what_, "", full, "",
               kWidth - full, 100 * part, detail);
    open_ = true;
  } else {
    fmt::print(stderr, "{}: {:.0f} % {}\n", what_, 100 * part, detail);
  }
  std::fflush(stderr);
}

void Progress::finish() {
  if (open_) fmt::print(stderr, "\n");
  open_ = false;
}

}  // namespace quiver
