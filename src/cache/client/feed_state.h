// What the threads of one feed share. The loop's thread issues and delivers, the draw thread draws,
// reader threads read; they meet here.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "base/guarded.h"
#include "cache/client/arena.h"
#include "cache/client/feed.h"
#include "cache/client/job_progress.h"
#include "cache/client/pace_meter.h"

namespace quiver::cache {

// One epoch as it is being run, or what is left of one. Immutable once it is made.
struct RunPlan {
  std::uint64_t serial = 0;  // of runs of this feed, from 1
  std::uint64_t epoch = 0, seed = 0;
  std::uint32_t first_step = 0, batches = 0;
  std::uint32_t first_place = 0;  // of a strict order, as far as it is known
  ItemSet part;                   // what this rank draws from
  std::vector<ItemId> pads;
  std::optional<std::vector<std::vector<ItemId>>> listed;  // replay
  std::stop_source given_up{};  // ends the reads of a run that is abandoned
};

// A batch from its draw until it is delivered.
struct Reading {
  std::shared_ptr<const RunPlan> plan;
  std::uint32_t step = 0;
  std::vector<ItemId> items;
  std::vector<ItemId> asked_late;  // that are missing and are ordered when their turn comes
  std::uint32_t settled = 0;       // of them, resident when the epoch began
  std::uint64_t block = 0, bytes = 0;
  std::atomic<std::uint64_t> content = 0;  // bytes of the items that were read
  std::array<std::atomic<std::uint32_t>, kTiers> tiers{};
  std::atomic<std::uint32_t> next = 0, left = 0;  // the item to be claimed next; those not yet read
};

struct Entry {
  std::optional<std::uint64_t> ticket;
  std::shared_ptr<Reading> reading;  // once drawn
  bool ready = false;                // read
};

// What the daemons read from the origin meanwhile, by the counters of their views. A view stays
// mapped after its daemon's death, so nothing of that is lost.
class NodeOriginBytes {
 public:
  void begin() {
    earlier_ = 0;
    before_ = counter();
  }
  // Another daemon counts from its own beginning; null: there is none now.
  void follow(std::shared_ptr<const ViewReader> view) {
    earlier_ = value();
    view_ = std::move(view);
    before_ = counter();
  }
  std::uint64_t value() const { return earlier_ + std::max(counter(), before_) - before_; }

 private:
  std::uint64_t counter() const { return view_ ? view_->counters().origin_bytes : 0; }

  std::shared_ptr<const ViewReader> view_;
  std::uint64_t earlier_ = 0, before_ = 0;
};

// The run's side that changes; under the lock of FeedState.
struct FeedState {
  explicit FeedState(RankState start, std::uint32_t tickets)
      : progress(std::move(start)), ready_at(tickets) {}

  std::shared_ptr<const RunPlan> plan;           // of the run; null before the first
  std::map<std::uint32_t, Entry> entries;        // by step, from draw or issue to delivery
  std::map<std::uint64_t, std::uint32_t> steps;  // by ticket, from issue to delivery
  std::uint32_t drawn = 0, issued = 0, delivered = 0;
  std::uint64_t first_ticket = 0, next_ticket = 0;  // of the run; to be issued next
  std::uint64_t held_bytes = 0;                     // of blocks of entries
  JobProgress progress;
  EpochReport report;
  JobCounters counters;  // of all epochs
  PaceMeter meter;
  Instant began{}, last_delivery{};
  Duration hindered{};  // since then the loop has waited for data
  LoopStep step;        // that ends with the next delivery: how its batch was decoded
  NodeOriginBytes node_bytes;
  std::uint64_t direct_before = 0;  // this process had read directly when the epoch began
  bool join_due = true;             // the loop waits for the daemon's answer
  std::optional<Error> refusal;     // the rank is there already
  bool closed = false;

  struct ReadyAt {
    std::uint64_t ticket = UINT64_MAX;
    Instant at{};
  };
  std::vector<ReadyAt> ready_at;  // by ticket modulo its size

  bool running() const { return plan && delivered < plan->batches; }
};

// The rank's board and what it says, so that it can be written anew for another daemon.
struct Board {
  std::shared_ptr<JobBoardWriter> writer;
  BoardEpoch epoch;
  std::uint64_t run = 0;  // whose epoch it is
  std::optional<ItemSet> settled, taken;
};

struct FeedShared {
  FeedShared(std::shared_ptr<Dataset> d, FeedOptions o, Environment e, std::shared_ptr<Arena> a,
             RankState start, std::uint32_t tickets)
      : dataset(std::move(d)),
        options(std::move(o)),
        environment(e),
        arena(std::move(a)),
        allocator(arena, options.memory_limit),
        state(std::move(start), tickets) {}

  const std::shared_ptr<Dataset> dataset;
  const FeedOptions options;
  const Environment environment;
  const std::shared_ptr<Arena> arena;
  Guarded<BlockAllocator> allocator;
  Guarded<FeedState> state;
  Guarded<Board> board;

  bool strict() const { return options.mode == Mode::kStrict || !options.shuffle; }
};

}  // namespace quiver::cache
