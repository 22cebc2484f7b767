// DiskFloor: the share of the disk that stays free for others. Asks the file system once a second,
// every 16 MiB, and before it refuses; counts what was written since. Any thread.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/guarded.h"
#include "io/file.h"

namespace quiver::cache {

class DiskFloor {
 public:
  DiskFloor(std::string path, double floor, io::Files& files, Clock& clock)
      : path_(std::move(path)), floor_(floor), files_(files), clock_(clock) {}
  // kNoSpace when `bytes` more would touch the floor.
  Status take(Bytes bytes);
  void look_again() {
    state_.with([](State& s) { s.space.reset(); });
  }

 private:
  struct State {
    std::optional<io::DiskSpace> space;
    Instant asked;
    Bytes since;
  };
  Status count(Bytes bytes);

  const std::string path_;
  const double floor_;
  io::Files& files_;
  Clock& clock_;
  Guarded<State> state_;
};

}  // namespace quiver::cache
