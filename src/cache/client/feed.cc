#include "cache/client/feed.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/client/draw_thread.h"
#include "cache/client/feed_reader.h"
#include "cache/client/shared_memory.h"
#include "io/process.h"

namespace quiver::cache {
namespace {

constexpr Duration kLongestJoin = std::chrono::seconds(30);

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

RankState fresh_state(const Dataset& dataset, const FeedOptions& options) {
  RankState state(dataset.manifest().size());
  // What is provisional has another root when it has been read: its state stays its own.
  const Manifest& manifest = dataset.manifest();
  state.dataset = public_id(manifest.provisional() ? listing_hash(manifest) : manifest.root());
  state.seed = options.seed;
  state.world = options.world;
  state.rank = options.rank;
  state.batch_size = options.batch_size;
  const bool strict = options.mode == Mode::kStrict || !options.shuffle;
  state.mode = strict ? "strict" : "substitute";
  return state;
}

class FeedImpl final : public Feed {
 public:
  FeedImpl(std::shared_ptr<Dataset> dataset, FeedOptions options, Environment environment,
           std::shared_ptr<Arena> arena, std::uint32_t slots)
      : base_(dataset->manifest().size(), options.subset.empty()) {
    for (const ItemId id : options.subset) base_.insert(id);
    RankState start = fresh_state(*dataset, options);
    seed_ = options.seed;
    shared_ = std::make_unique<FeedShared>(std::move(dataset), std::move(options), environment,
                                           std::move(arena), std::move(start), slots);
    reader_ = make_feed_reader(shared_->arena);
  }

  ~FeedImpl() override {
    if (mark_.in_maker()) {
      close();
    } else {  // a fork's child has neither the threads nor, perhaps, the locks
      (void)draw_.release();
      (void)shared_.release();
    }
  }

  int shared_fd() const override { return shared_->arena->fd().get(); }
  std::shared_ptr<FeedReader> reader() override { return reader_; }
  std::uint32_t batches() const override;
  Status begin_epoch() override;
  std::optional<std::uint64_t> issue() override;
  void delivered(std::uint64_t ticket, std::uint32_t skipped, const Handover& handover) override;

  std::uint64_t epoch() const override {
    return shared_->state.with(
        [&](const FeedState& s) { return s.running() ? s.plan->epoch : next_epoch(); });
  }
  void set_epoch(std::uint64_t epoch) override {
    explicit_epoch_.reset();
    if (!loaded_ || loaded_->epoch != epoch) explicit_epoch_ = epoch;
  }
  void abandon() override;
  RankState state() const override;
  Status load_state(const JobState& state) override;
  Status replay(std::vector<std::vector<ItemId>> batches) override;
  EpochReport report() const override;
  void close() override;

 private:
  std::uint64_t next_epoch() const {
    if (explicit_epoch_) return *explicit_epoch_;
    if (loaded_) return loaded_->epoch;
    return following_epoch_;
  }
  Shape shape_of(std::uint32_t items) const;
  // What the next epoch draws from, over all ranks, and where it goes on.
  struct Start {
    std::uint64_t epoch = 0;
    std::uint32_t first_step = 0;
    ItemSet before, remaining;
  };
  Start next_start() const;
  RunPlan plan_run(const Start& start) const;
  void complete();
  Status join();
  void abandon_run(FeedState& s);
  std::uint64_t new_ticket(FeedState& s) const;
  void count_waiting(FeedState& s, std::uint64_t ticket, const Handover& handover, Instant now);
  void count_delivered(FeedState& s, const Reading& reading);
  void measure_step(FeedState& s, const Reading& reading, Instant now);

  ForkMark mark_;
  ItemSet base_;  // all items, or the subset
  std::unique_ptr<FeedShared> shared_;
  std::shared_ptr<FeedReader> reader_;
  std::unique_ptr<DrawThread> draw_;

  // Of the loop's thread.
  std::uint64_t seed_ = 0, serial_ = 0;
  std::uint64_t following_epoch_ = 0;  // after the one that began last
  std::optional<std::uint64_t> explicit_epoch_;
  std::optional<JobState> loaded_;
  std::optional<std::vector<std::vector<ItemId>>> replay_;  // of the epoch that begins next
  bool replays_ = false;                                    // once given, always given
};

Shape FeedImpl::shape_of(std::uint32_t items) const {
  const FeedOptions& o = shared_->options;
  return {items, o.world, o.rank, o.batch_size, o.drop_last, o.uneven, o.shuffle};
}

FeedImpl::Start FeedImpl::next_start() const {
  Start start{next_epoch(), 0, ItemSet(base_.size()), base_};
  if (loaded_ && loaded_->epoch == start.epoch) {
    start.first_step = loaded_->step;
    start.before = loaded_->delivered;
    start.remaining.remove(loaded_->delivered);
    const bool nothing_left = start.remaining.count() == 0 && !replay_;
    if (nothing_left) {
      return {start.epoch + 1, 0, ItemSet(base_.size()), base_};
    }
  }
  return start;
}

RunPlan FeedImpl::plan_run(const Start& start) const {
  const Shape shape = shape_of(start.remaining.count());
  RankPart part = part_of_rank(base_, start.remaining, shape, seed_, start.epoch);
  // One rank of all items has been given the order up to here, or nearly: it goes on without a look
  // at what is behind.
  const bool whole = shape.world == 1 && base_.count() == base_.size();
  const std::uint32_t first_place = whole ? start.before.count() : 0;
  RunPlan plan{serial_ + 1,
               start.epoch,
               seed_,
               start.first_step,
               batches_of_rank(shape),
               first_place,
               std::move(part.items),
               std::move(part.pads),
               std::nullopt};
  if (!replay_) return plan;
  plan.listed = replay_;
  plan.batches = static_cast<std::uint32_t>(replay_->size());
  plan.part = ItemSet(base_.size());
  plan.pads.clear();
  for (const auto& batch : *plan.listed) {
    for (const ItemId id : batch) plan.part.insert(id);
  }
  return plan;
}

std::uint32_t FeedImpl::batches() const {
  return shared_->state.with([&](const FeedState& s) -> std::uint32_t {
    if (s.running()) return s.plan->batches;
    if (replay_) return static_cast<std::uint32_t>(replay_->size());
    if (replays_) return 0;
    return batches_of_rank(shape_of(next_start().remaining.count()));
  });
}

Status FeedImpl::begin_epoch() {
  if (replays_ && !replay_) {
    return error(Code::kInvalid, "the recording has no further epoch to replay");
  }
  complete();
  TRY(join());
  const Start start = next_start();
  auto plan = std::make_shared<const RunPlan>(plan_run(start));
  serial_ = plan->serial;
  following_epoch_ = plan->epoch + 1;
  replay_.reset();
  explicit_epoch_.reset();
  loaded_.reset();
  const std::uint64_t direct = shared_->dataset->stats().direct_origin_bytes.value;
  abandon();
  shared_->state.change([&](FeedState& s) {
    s.plan = plan;
    s.drawn = s.issued = s.delivered = 0;
    s.first_ticket = s.next_ticket;
    // Lists are not dealt: any rank may have any item any number of times.
    ItemSet part = plan->listed ? ItemSet(base_.size()) : plan->part;
    s.progress.begin(plan->epoch, plan->first_step, plan->batches, start.before, std::move(part));
    s.report = EpochReport{};
    s.report.epoch = plan->epoch;
    s.began = s.last_delivery = Instant{};
    s.hindered = {};
    s.node_bytes.begin();
    s.direct_before = direct;
  });
  return {};
}

// Between two epochs a dataset that has been read whole for the first time becomes the complete
// one.
void FeedImpl::complete() {
  if (!shared_->dataset->manifest().provisional() || !draw_) return;
  abandon();
  const auto completed = shared_->dataset->complete();
  if (!completed) {
    log(shared_->environment.log, LogLevel::kWarning, "the manifest stays provisional: {}",
        completed.error().message);
  } else if (*completed) {
    shared_->state.change([](FeedState& s) { s.join_due = true; });
  }
}

// Waits until the daemon has taken the rank in, or there is none; the first batch waits for that
// too.
Status FeedImpl::join() {
  const bool closed = shared_->state.change([](FeedState& s) {
    if (s.refusal) s.join_due = true;  // it may have changed its mind
    return s.closed;
  });
  if (closed) return error(Code::kCancelled, "the loader has been closed");
  if (!draw_) draw_ = std::make_unique<DrawThread>(*shared_);
  std::optional<Error> refusal;
  shared_->state.wait_for(
      std::stop_token{}, kLongestJoin, [](const FeedState& s) { return !s.join_due; },
      [&](FeedState& s) { refusal = s.refusal; });
  if (refusal) return *std::move(refusal);
  return {};
}

void FeedImpl::abandon() {
  std::shared_ptr<const RunPlan> ended;
  shared_->state.change([&](FeedState& s) {
    abandon_run(s);
    ended = std::exchange(s.plan, nullptr);
  });
  if (ended) ended->given_up.request_stop();  // calls others: without the lock
}

void FeedImpl::abandon_run(FeedState& s) {
  for (auto& [step, entry] : s.entries) {
    if (entry.ticket) {
      shared_->arena->end(*entry.ticket);
    } else if (entry.ready) {
      shared_->arena->drop_reference(entry.reading->block);
    }
  }
  s.entries.clear();
  s.steps.clear();
  s.held_bytes = 0;
}

// Tickets are not delivered in the order of their issue: while one worker is slow the others may
// run ahead of what waits behind it. A number whose slot serves such a ticket is passed over.
std::uint64_t FeedImpl::new_ticket(FeedState& s) const {
  for (std::size_t i = 0; i < s.ready_at.size(); ++i) {
    if (!shared_->arena->occupied(s.next_ticket)) break;
    ++s.next_ticket;
  }
  return s.next_ticket++;
}

std::optional<std::uint64_t> FeedImpl::issue() {
  const Instant now = shared_->environment.clock.now();
  return shared_->state.change([&](FeedState& s) -> std::optional<std::uint64_t> {
    if (s.closed || !s.plan || s.issued == s.plan->batches) return std::nullopt;
    if (s.issued == 0) s.began = now;
    const std::uint64_t ticket = new_ticket(s);
    const std::uint32_t step = s.plan->first_step + s.issued++;
    shared_->arena->issue(ticket);
    s.steps[ticket] = step;
    Entry& entry = s.entries[step];
    entry.ticket = ticket;
    if (entry.ready) {
      s.ready_at[ticket % s.ready_at.size()] = {ticket, now};
      shared_->arena->publish(ticket, s.plan->epoch, step, entry.reading->block);
    }
    return ticket;
  });
}

void FeedImpl::delivered(std::uint64_t ticket, std::uint32_t skipped, const Handover& handover) {
  const Instant now = shared_->environment.clock.now();
  // The draw thread waits for the next ticket, or for memory.
  const bool full = shared_->state.with([&](FeedState& s) {
    const auto issued = s.steps.find(ticket);
    if (issued == s.steps.end()) return false;  // of another run
    const auto entry = s.entries.find(issued->second);
    if (entry == s.entries.end() || !entry->second.ready) return false;
    const Reading& reading = *entry->second.reading;
    count_waiting(s, ticket, handover, now);
    shared_->arena->end(ticket);
    count_delivered(s, reading);
    measure_step(s, reading, now);
    s.report.skipped += skipped;
    const std::uint32_t pads = s.progress.deliver(entry->first, reading.items);
    if (!reading.plan->listed) s.report.repeats += pads;
    ++s.delivered;
    s.last_delivery = now;
    const bool was_full = s.held_bytes >= shared_->options.memory_limit.value;
    s.held_bytes -= reading.bytes;
    s.entries.erase(entry);
    s.steps.erase(issued);
    return was_full;
  });
  if (full) shared_->state.wake();
}

void FeedImpl::count_delivered(FeedState& s, const Reading& reading) {
  ++s.report.batches;
  s.report.samples += reading.items.size();
  // What was read past the cache was no hit, whatever lay there.
  const std::uint64_t cached =
      reading.items.size() - reading.tiers[static_cast<std::size_t>(Tier::kDirect)];
  s.report.settled += std::min<std::uint64_t>(reading.settled, cached);
  for (int t = 0; t < kTiers; ++t) s.report.tiers[t] += reading.tiers[static_cast<std::size_t>(t)];
  const auto read_from = [&](Tier tier) -> std::uint64_t {
    return reading.tiers[static_cast<std::size_t>(tier)];
  };
  const std::uint64_t here = read_from(Tier::kPinned) + read_from(Tier::kStaged);
  const std::uint64_t pinned = std::min<std::uint64_t>(reading.settled, here);
  s.counters.pinned += pinned;
  s.counters.staged += here - pinned;
  s.counters.missed += read_from(Tier::kFetched);
  s.counters.direct += read_from(Tier::kDirect);
  s.counters.bytes += reading.content;
  ++s.counters.steps;
}

// The first step of an epoch has no delivery before it: what the loop did between epochs is no
// step.
void FeedImpl::measure_step(FeedState& s, const Reading& reading, Instant now) {
  LoopStep step = std::exchange(s.step, LoopStep{});
  const Duration hindered = std::exchange(s.hindered, Duration(0));
  if (s.last_delivery == Instant{}) return;
  step.items = static_cast<std::uint32_t>(reading.items.size());
  step.loop = now - s.last_delivery - hindered;
  s.meter.add(step);
}

void FeedImpl::count_waiting(FeedState& s, std::uint64_t ticket, const Handover& handover,
                             Instant now) {
  const auto& slot = s.ready_at[ticket % s.ready_at.size()];
  if (slot.ticket != ticket) return;
  const Duration total = handover.waited;
  const Duration link = std::clamp(slot.at - (now - total), Duration(0), total);
  s.report.waited_link_s += seconds(link);
  s.report.waited_decode_s += seconds(total - link);
  s.counters.waited_link_ns += static_cast<std::uint64_t>(link.count());
  s.counters.waited_decode_ns += static_cast<std::uint64_t>((total - link).count());
  // Workers that decode beside the loop hinder it too when they have only just got the bytes, and
  // would not have if those had been there: what they can do is reckoned from their own time.
  s.hindered +=
      handover.workers == 0 ? link : std::clamp(total - handover.since_decoded, Duration(0), total);
  s.step.decoding = handover.decoding;
  s.step.workers = handover.workers;
}

RankState FeedImpl::state() const {
  return shared_->state.with([&](const FeedState& s) {
    RankState state = s.progress.state();
    if (s.running() || !explicit_epoch_) return state;
    begin_next_epoch(state);
    state.epoch = *explicit_epoch_;
    return state;
  });
}

Status FeedImpl::load_state(const JobState& state) {
  if (state.items != base_.size() || state.delivered.size() != base_.size()) {
    return error(Code::kInvalid,
                 "the state is of a dataset of {} items, this one has {}: load the state of this "
                 "dataset",
                 state.items, base_.size());
  }
  loaded_ = state;
  explicit_epoch_.reset();
  seed_ = state.seed;
  abandon();
  shared_->state.change([&](FeedState& s) { s.progress.load(state); });
  return {};
}

Status FeedImpl::replay(std::vector<std::vector<ItemId>> batches) {
  for (const auto& batch : batches) {
    if (batch.empty()) return error(Code::kInvalid, "a batch of the recording has no item in it");
    for (const ItemId id : batch) {
      if (id.value >= base_.size()) {
        return error(Code::kInvalid, "the recording names item {} of a dataset of {}", id.value,
                     base_.size());
      }
    }
  }
  replay_ = std::move(batches);
  replays_ = true;
  return {};
}

EpochReport FeedImpl::report() const {
  const std::uint64_t direct = shared_->dataset->stats().direct_origin_bytes.value;
  const bool degraded = shared_->dataset->degraded();
  return shared_->state.with([&](const FeedState& s) {
    EpochReport report = s.report;
    report.degraded |= degraded;
    if (s.began == Instant{}) return report;
    report.origin_bytes = s.node_bytes.value() + direct - s.direct_before;
    if (s.last_delivery != Instant{}) report.seconds = seconds(s.last_delivery - s.began);
    return report;
  });
}

void FeedImpl::close() {
  shared_->state.change([](FeedState& s) { s.closed = true; });
  shared_->arena->close();
  abandon();
  draw_.reset();
}

Status check(const Dataset& dataset, const FeedOptions& options) {
  const std::uint32_t n = dataset.manifest().size();
  if (options.batch_size == 0) return error(Code::kInvalid, "batch_size must be at least 1");
  if (options.world == 0 || options.rank >= options.world) {
    return error(Code::kInvalid, "rank {} does not exist in a world of {}", options.rank,
                 options.world);
  }
  for (const ItemId id : options.subset) {
    if (id.value >= n) {
      return error(Code::kInvalid, "the subset names item {} of a dataset of {}", id.value, n);
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Feed>> Feed::create(std::shared_ptr<Dataset> dataset, FeedOptions options,
                                           Environment environment) {
  if (Status ok = check(*dataset, options); !ok) return std::move(ok).error();
  if (options.job == decltype(options.job){}) {
    if (Status made = io::random_bytes(std::as_writable_bytes(std::span(options.job))); !made) {
      return std::move(made).error();
    }
  }
  // Twice as many slots as may be outstanding: an abandoned epoch's tickets keep theirs for a
  // while.
  const std::uint32_t slots = 2 * std::max(1u, options.max_tickets);
  std::shared_ptr<Arena> arena = TRY(Arena::create(slots));
  return std::unique_ptr<Feed>(std::make_unique<FeedImpl>(std::move(dataset), std::move(options),
                                                          environment, std::move(arena), slots));
}

}  // namespace quiver::cache
