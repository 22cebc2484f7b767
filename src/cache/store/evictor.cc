#include "cache/store/evictor.h"

#include <optional>

#include "io/process.h"

namespace quiver::cache {
namespace {

constexpr Duration kTryAgain = std::chrono::seconds(1);

}  // namespace

Evictor::Evictor(Free free)
    : free_(std::move(free)), thread_([this](std::stop_token stop) { work(std::move(stop)); }) {}

void Evictor::push(Job job) {
  state_.change([&](State& s) {
    s.queue.push_back(std::move(job));
    ++s.on_their_way;
  });
}

bool Evictor::wait_for_more(std::uint64_t seen, Duration patience) {
  bool more = true;
  state_.wait_for(
      std::stop_token{}, patience,
      [&](const State& s) { return s.freed != seen || s.on_their_way == 0; },
      [&](State& s) { more = s.freed != seen; });
  return more;
}

bool Evictor::wait_until_done(Duration patience) {
  return state_.wait_for(
      std::stop_token{}, patience, [](const State& s) { return s.on_their_way == 0; },
      [](State&) {});
}

void Evictor::work(std::stop_token stop) {
  io::name_this_thread("store-evict");
  while (!stop.stop_requested()) {
    std::optional<Job> job;
    state_.wait_for(
        stop, kTryAgain, [](const State& s) { return !s.queue.empty(); },
        [&](State& s) {
          job = std::move(s.queue.front());
          s.queue.pop_front();
        });
    if (!job) {  // a second without any: time for those that failed
      state_.with([](State& s) {
        s.on_their_way += s.failed.size();
        for (Job& failed : s.failed) s.queue.push_back(std::move(failed));
        s.failed.clear();
      });
      continue;
    }
    const bool done = free_(*job);
    state_.change([&](State& s) {
      --s.on_their_way;
      if (done) {
        ++s.freed;
      } else {
        s.failed.push_back(*std::move(job));
      }
    });
  }
}

}  // namespace quiver::cache
