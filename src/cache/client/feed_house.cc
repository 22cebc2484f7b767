// The draw thread's housekeeping: the board of another daemon, what was lost, how the job fares.
#include <algorithm>

#include "cache/client/draw_thread.h"

namespace quiver::cache {
namespace {

constexpr Duration kPeriod = std::chrono::seconds(1);
// A killed process's workers look for it every five seconds; until then they hold its session.
constexpr Duration kRankLingers = std::chrono::seconds(8);

}  // namespace

void DrawThread::follow_view() {
  auto view = shared_.dataset->view();
  if (view == view_) return;
  view_ = std::move(view);
  followed_.reset();  // it keeps the session that has ended, and with it the rank's place
  shared_.state.with([&](FeedState& s) { s.node_bytes.follow(view_); });
}

void DrawThread::keep_house() {
  const Instant now = shared_.environment.clock.now();
  const bool join_due = shared_.state.with([](const FeedState& s) { return s.join_due; });
  if (!join_due && now < next_housekeeping_) return;
  next_housekeeping_ = now + kPeriod;
  std::optional<Error> refusal;
  if (view_ && shared_.dataset->generation() != generation_) {
    refusal = rejoin(join_due ? kRankLingers : Duration(0));
  }
  shared_.state.change([&](FeedState& s) {
    s.refusal = std::move(refusal);
    s.join_due = false;
  });
  if (view_ && sampler_) find_lost();
  shared_.allocator.with([](BlockAllocator& a) { a.trim(); });
  report();
}

// Why the rank may not be here at all; that there is no daemon is no reason.
std::optional<Error> DrawThread::rejoin(Duration patience) {
  const std::uint64_t generation = shared_.dataset->generation();
  const FeedOptions& o = shared_.options;
  // The board may be of the daemon that is there now: a new one can come at any moment.
  shared_.board.with([](Board& board) { board.writer.reset(); });
  auto writer = shared_.dataset->join(o.job, o.world, o.rank, o.batch_size, patience);
  if (!writer) {
    const Error& why = writer.error();
    log(shared_.environment.log, LogLevel::kDebug, "not joined: {}", why.message);
    if (why.code != Code::kInvalid) return std::nullopt;
    return error(Code::kInvalid,
                 "{}: start each rank of a job once, and give another job over the same data "
                 "another seed",
                 why.message);
  }
  generation_ = generation;
  evicted_ = UINT64_MAX;  // what the last daemon held may not be here
  shared_.board.with([&](Board& board) { board.writer = *std::move(writer); });
  publish_board();
  return std::nullopt;
}

void DrawThread::find_lost() {
  const std::uint64_t evicted = view_->counters().evicted_items;
  if (evicted == evicted_) return;
  evicted_ = evicted;
  std::vector<ItemId> lost;
  settled_->for_each([&](ItemId id) {
    if (view_->word(id).residency() != Residency::kHere) lost.push_back(id);
  });
  if (lost.empty()) return;
  for (const ItemId id : lost) {
    settled_->erase(id);
    sampler_->lost(id);
  }
  shared_.board.with([&](Board& board) { board.settled = settled_; });
  publish_board();  // so that the daemon fetches them anew
}

void DrawThread::report() {
  ReportRequest request;
  shared_.state.with([&](FeedState& s) {
    s.report.degraded |= s.plan != nullptr && shared_.dataset->degraded();
    if (!s.plan) return;
    request.epoch = s.plan->epoch;
    request.step = s.plan->first_step + s.delivered;
    request.steps = s.plan->first_step + s.plan->batches;
    request.samples = s.report.samples;
    request.hits = s.report.settled;
    request.direct = s.report.tiers[static_cast<int>(Tier::kDirect)];
    request.waited_link_s = s.report.waited_link_s;
    request.waited_decode_s = s.report.waited_decode_s;
  });
  if (!view_ || generation_ == 0 || request.steps == 0) return;
  request.job = shared_.options.job;
  request.rank = shared_.options.rank;
  shared_.dataset->report(request);
}

// A board of another daemon gets what was counted for all of them.
void DrawThread::tell_board() {
  const Instant now = shared_.environment.clock.now();
  if (now < next_telling_) return;
  next_telling_ = now + kTell;
  const auto [counters, pace] =
      shared_.state.with([](const FeedState& s) { return std::pair(s.counters, s.meter.pace()); });
  shared_.board.with([&](Board& board) {
    if (!board.writer) return;
    board.writer->set_counters(counters);
    board.writer->set_pace(pace, shared_.options.batch_size);
  });
}

}  // namespace quiver::cache
