// FetchWait: where a connection's thread waits for the items that it asked for.
#pragma once

#include <vector>

#include "base/guarded.h"
#include "cache/client/protocol.h"

namespace quiver::cache {

// Shared by the connection's thread, which waits, and the control thread, which decides. Each item
// is decided at most once.
class FetchWait {
 public:
  explicit FetchWait(std::size_t items) {
    state_.with([&](State& s) { s.results.resize(items); });
  }

  void decide(std::size_t index, FetchResult result) {
    state_.change([&](State& s) {
      s.results[index] = std::move(result);
      ++s.decided;
    });
  }
  // What is known when all are decided, the time is over or the stop was asked for.
  std::vector<FetchResult> wait(std::stop_token stop, Duration timeout) {
    state_.wait_for(
        stop, timeout, [](const State& s) { return s.decided == s.results.size(); }, [](State&) {});
    return state_.with([](const State& s) { return s.results; });
  }

 private:
  struct State {
    std::vector<FetchResult> results;
    std::size_t decided = 0;
  };
  Guarded<State> state_;
};

}  // namespace quiver::cache
