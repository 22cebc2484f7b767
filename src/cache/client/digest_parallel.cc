#include "cache/client/digest_parallel.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include "base/guarded.h"
#include "cache/client/digest_listing.h"
#include "io/process.h"

namespace quiver::cache {

Status in_parallel(
    std::size_t count, int threads,
    const std::function<Status(std::size_t, std::string& scratch, std::stop_token)>& each,
    const std::function<void()>& tick, std::stop_token stop) {
  struct State {
    std::size_t next = 0;
    int running = 0;
    std::optional<Error> failed;
  };
  Guarded<State> state;
  std::stop_source give_up;
  const std::stop_callback forward(stop, [&] { give_up.request_stop(); });
  const auto work = [&] {
    io::name_this_thread("qv-digest");
    std::string scratch;
    while (!give_up.stop_requested()) {
      const std::size_t index = state.with([](State& s) { return s.next++; });
      if (index >= count) break;
      Status done = each(index, scratch, give_up.get_token());
      if (done) continue;
      state.with([&](State& s) {
        if (!s.failed) s.failed = std::move(done).error();
      });
      give_up.request_stop();
    }
    state.change([](State& s) { --s.running; });
  };
  const auto wanted = std::min<std::size_t>(count, static_cast<std::size_t>(std::max(1, threads)));
  state.with([&](State& s) { s.running = static_cast<int>(wanted); });
  std::vector<std::jthread> pool;
  for (std::size_t i = 0; i < wanted; ++i) pool.emplace_back(work);
  bool over = false;
  while (!over) {
    over = state.wait_for(
        std::stop_token{}, kProgressEvery, [](const State& s) { return s.running == 0; },
        [](State&) {});
    tick();
  }
  pool.clear();
  auto failed = state.with([](State& s) { return std::move(s.failed); });
  if (failed) return *std::move(failed);
  if (stop.stop_requested()) return error(Code::kCancelled, "the digest was interrupted");
  return {};
}

}  // namespace quiver::cache
