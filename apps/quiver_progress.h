// Progress of something long: a bar on a terminal, a plain line a second elsewhere, nothing in
// JSON.
#pragma once

#include <string>

#include "base/clock.h"

namespace quiver {

class Progress {
 public:
  Progress(const Clock& clock, std::string what, bool quiet);
  ~Progress() { finish(); }
  // `total` 0: not known yet.
  void show(std::uint64_t done, std::uint64_t total, const std::string& detail);
  void finish();  // ends the line of the bar

 private:
  const Clock& clock_;
  const std::string what_;
  const bool quiet_, terminal_;
  Instant next_;
  bool open_ = false, finished_ = false;
};

}  // namespace quiver
