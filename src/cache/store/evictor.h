// Evictor: frees the disk of segments that were evicted, one after the other, on a thread of its
// own. A disk that stalls then holds up only those who wait for the room.
//
// Bounded by the number of segments: each is in it once. One that cannot be freed is tried again
// every second. Any thread may call anything; the function given is called on the thread alone.
// ~Evictor leaves what has not been begun: the next start finds it and evicts it again.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/guarded.h"
#include "cache/store/store.h"

namespace quiver::cache {

class Evictor {
 public:
  struct Job {
    SegmentId id;
    Lane lane;
  };
  // True when its disk is free; false: to be tried again.
  using Free = std::function<bool(const Job&)>;
  explicit Evictor(Free free);

  void push(Job job);
  // How many have been freed since it was made.
  std::uint64_t freed() const {
    return state_.with([](const State& s) { return s.freed; });
  }
  // Waits until that is more than `seen`, there is nothing to wait for, or the time is over. True
  // when it is more or may yet become so.
  bool wait_for_more(std::uint64_t seen, Duration patience);
  // False when some are still on their way after that time. Those that failed are not waited for.
  bool wait_until_done(Duration patience);

 private:
  struct State {
    std::deque<Job> queue;
    std::vector<Job> failed;
    std::size_t on_their_way = 0;  // in the queue or being freed
    std::uint64_t freed = 0;
  };
  void work(std::stop_token stop);

  const Free free_;
  Guarded<State> state_;
  std::jthread thread_;
};

}  // namespace quiver::cache
