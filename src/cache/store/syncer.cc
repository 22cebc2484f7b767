#include "cache/store/syncer.h"

#include "io/process.h"

namespace quiver::cache {
namespace {

constexpr Duration kEvery = std::chrono::seconds(1);
constexpr int kAllEvery = 5;

}  // namespace

Syncer::Syncer(Pass pass)
    : pass_(std::move(pass)), thread_([this](std::stop_token stop) { work(std::move(stop)); }) {}

void Syncer::work(std::stop_token stop) {
  io::name_this_thread("store-sync");
  for (int turn = 1; !stop.stop_requested(); ++turn) {
    const bool last = state_.wait_for(
        stop, kEvery, [](const State& s) { return s.finishing; }, [](State&) {});
    if (stop.stop_requested()) return;
    Status synced = pass_(last || turn % kAllEvery == 0, stop);
    if (!last) continue;  // what failed stays to be synced: the last pass tells
    state_.change([&](State& s) {
      s.result = std::move(synced);
      s.finished = true;
    });
    return;
  }
}

Status Syncer::finish(Duration patience) {
  state_.change([](State& s) { s.finishing = true; });
  Status result = error(Code::kTimeout, "the disk takes too long over what is still to be written");
  state_.wait_for(
      std::stop_token{}, patience, [](const State& s) { return s.finished; },
      [&](State& s) { result = s.result; });
  return result;
}

}  // namespace quiver::cache
