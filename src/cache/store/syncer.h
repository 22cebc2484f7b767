// Syncer: puts what was written onto the disk itself, a little at a time, on a thread of its own,
// so that little is left to do when the store closes. Any thread may call anything.
#pragma once

#include <functional>
#include <stop_token>
#include <thread>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/result.h"

namespace quiver::cache {

class Syncer {
 public:
  // Called on the thread every second, and every fifth time with `all`: what is sealed is synced at
  // once, what is still appended to less often. Gives up soon after the stop.
  using Pass = std::function<Status(bool all, std::stop_token stop)>;
  explicit Syncer(Pass pass);

  // One last pass over all. kTimeout when it takes longer.
  Status finish(Duration patience);

 private:
  struct State {
    bool finishing = false;
    bool finished = false;
    Status result;
  };
  void work(std::stop_token stop);

  const Pass pass_;
  Guarded<State> state_;
  std::jthread thread_;
};

}  // namespace quiver::cache
