#include "cache/client/draw_thread.h"

#include <algorithm>
#include <utility>

#include "io/process.h"

namespace quiver::cache {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr Duration kLeastPause = std::chrono::milliseconds(1);  // however much arrives
constexpr Duration kAskAfter = std::chrono::milliseconds(50);
constexpr Duration kAskAgain = std::chrono::milliseconds(250);
constexpr Duration kDrawLateAfter = std::chrono::seconds(1);
constexpr Duration kHousekeeping = std::chrono::seconds(1);
constexpr std::uint32_t kDirectReaders = 16;  // DirectReader has the bound that counts

std::vector<std::uint64_t> words_of(const std::optional<ItemSet>& set) {
  return set->words();
}

}  // namespace

DrawThread::DrawThread(FeedShared& shared)
    : shared_(shared),
      readers_(shared),
      offers_(shared.dataset->manifest().size()),
      thread_([this](std::stop_token stop) {
        io::name_this_thread("qv-draw");
        run(stop);
      }) {}

DrawThread::~DrawThread() {
  thread_.request_stop();
  thread_.join();
  readers_.stop();
  shared_.board.with([](Board& board) { board.writer.reset(); });
}

void DrawThread::run(std::stop_token stop) {
  readers_.grow(std::max(1u, shared_.options.reader_threads));
  while (!stop.stop_requested()) {
    const bool work = wait_for_work(stop);
    follow_view();
    if (!view_) readers_.grow(kDirectReaders);
    keep_house();
    tell_board();
    if (work && !draw(stop)) wait_for_arrivals(stop);
  }
}

// True when a batch should be drawn.
bool DrawThread::wait_for_work(std::stop_token stop) {
  const std::uint32_t ahead = shared_.options.read_ahead;
  const Bytes limit = shared_.options.memory_limit;
  std::shared_ptr<const RunPlan> current;
  bool may_draw = false;
  const auto look = [&](const FeedState& s) {
    current = s.plan;
    const bool room = s.drawn < s.issued ||
                      (s.drawn < s.issued + std::max(1u, ahead) && s.held_bytes < limit.value);
    may_draw = s.plan && s.drawn < s.plan->batches && room && !s.closed;
    return may_draw || s.plan != plan_ || s.join_due;
  };
  shared_.state.wait_for(stop, plan_ ? kTell : kHousekeeping, look, [](FeedState&) {});
  if (current != plan_) adopt(std::move(current));
  return may_draw;
}

void DrawThread::adopt(std::shared_ptr<const RunPlan> plan) {
  plan_ = std::move(plan);
  sampler_.reset();
  asked_.clear();
  starved_since_ = {};
  drawn_ = drawn_late_ = 0;
  if (!plan_) return;
  follow_view();
  settled_ = ItemSet(plan_->part.size());
  if (view_) {
    plan_->part.for_each([&](ItemId id) {
      const ViewWord word = view_->word(id);
      if (word.residency() == Residency::kHere && word.pinned()) settled_->insert(id);
    });
    evicted_ = view_->counters().evicted_items;
    if (followed_ == view_) offers_.begin_epoch(*view_);
    useless_then_ = offers_.useless();
  }
  const FeedOptions& o = shared_.options;
  const EpochOptions epoch{plan_->seed, plan_->epoch,      o.rank,      o.batch_size,
                           o.drop_last, plan_->first_step, plan_->pads, plan_->first_place};
  if (plan_->listed) {
    sampler_ = make_listed_sampler(*plan_->listed, plan_->first_step);
  } else if (shared_.strict()) {
    sampler_ = make_strict_sampler(epoch, plan_->part, o.shuffle);
  } else {
    sampler_ = make_substituting_sampler(epoch, plan_->part, *settled_);
  }
  shared_.board.with([&](Board& board) {
    board.epoch = {.epoch = plan_->epoch,
                   .order_seed = plan_->seed,
                   .strict = shared_.strict(),
                   .shuffled = o.shuffle,
                   .listed = plan_->listed.has_value(),
                   .world = o.world,
                   .rank = o.rank,
                   .part = plan_->part.count()};
    board.run = plan_->serial;
    board.settled = settled_;
    board.taken = ItemSet(plan_->part.size(), true);  // all that is not this rank's to take
    board.taken->remove(plan_->part);
  });
  publish_board();
  report();  // and the daemon looks at the board at once
}

void DrawThread::publish_board() {
  shared_.board.with([&](Board& board) {
    if (!board.writer || !board.taken) return;
    board.writer->begin(board.epoch, words_of(board.settled), words_of(board.taken));
  });
}

bool DrawThread::draw(std::stop_token stop) {
  if (!sampler_ || sampler_->done()) return false;
  make_offers();
  auto batch = sampler_->next();
  if (!batch) {
    waits_ = true;
    return false;
  }
  ++drawn_;
  if (std::exchange(waits_, false)) ++drawn_late_;
  starved_since_ = {};
  offers_.taken(batch->items);
  return enqueue(*std::move(batch), stop);
}

void DrawThread::make_offers() {
  if (sampler_->wanted_now() == 0) return;
  if (!view_) return offer_own_order();
  if (followed_ != view_) {
    followed_ = view_;
    offers_.start(*view_);
  }
  seen_changes_ = view_->changes();
  std::uint32_t offered = offers_.offer(*view_, *sampler_);
  const Instant now = shared_.environment.clock.now();
  std::erase_if(asked_, [&](ItemId id) {
    if (!sampler_->wants(id)) return true;
    if (sampler_->wanted_now() == 0 || view_->word(id).residency() != Residency::kHere)
      return false;
    offered += sampler_->offer(id) ? 1 : 0;
    asked_at_ = now;
    return true;
  });
  if (offered > 0 || starved_since_ == Instant{}) starved_since_ = now;
  if (sampler_->wanted_now() == 0) return;
  // What passes is too little: it asks for what it needs itself. At once when another's order
  // passes, for each wait is lost; its own order is at most a look at its board away.
  const bool rides = offers_.useless() != useless_then_;
  const bool little = offers_.useful() + asked_.size() < sampler_->wanted_now();
  const bool nothing = offers_.useful() + asked_.size() == 0;
  // What was asked for has perhaps come and gone, when for so long none of it has come; to ask for
  // what is on its way costs nothing.
  const bool lost = !asked_.empty() && now - asked_at_ >= kAskAgain;
  if ((little && rides) || (nothing && now - starved_since_ >= kAskAfter) || lost) {
    const bool link_paces_it = 2 * drawn_late_ > drawn_;
    asked_ = sampler_->own_order((link_paces_it ? 4 : 2) * sampler_->wanted_now());
    asked_at_ = now;
    shared_.dataset->want(asked_);
  }
  if (now - starved_since_ >= kDrawLateAfter) {
    while (sampler_->wanted_now() > 0 && offers_.offer_oldest(*sampler_)) {
    }
    if (sampler_->wanted_now() > 0) offer_own_order();
  }
}

void DrawThread::offer_own_order() {
  for (const ItemId id : sampler_->own_order(sampler_->wanted_now())) sampler_->offer(id);
}

// Where there is no room for a batch, there is for what it failed of: `block` becomes that.
Result<std::uint64_t> DrawThread::allocate(BlockPlan& block, std::optional<Error>& failure) {
  const auto get = [&] {
    return shared_.allocator.with([&](BlockAllocator& a) { return a.allocate(block.size); });
  };
  auto allocated = get();
  if (allocated) return allocated;
  failure = error(Code::kNoSpace,
                  "there is no room for a batch of {} bytes: {}; let go of batches that the loop "
                  "keeps, or raise the limit on address space",
                  block.size, allocated.error().message);
  block = plan_block(std::vector<std::uint64_t>(block.rows.size()));
  return get();
}

// False when not even its failure finds room: then the feed ends, so that nobody waits for it.
bool DrawThread::enqueue(DrawnBatch batch, std::stop_token stop) {
  const Manifest& manifest = shared_.dataset->manifest();
  auto reading = std::make_shared<Reading>();
  std::vector<std::uint64_t> lengths;
  std::vector<ItemId> missing;
  for (const ItemId id : batch.items) {
    lengths.push_back(manifest.item(id).length.value);
    if (settled_->contains(id)) ++reading->settled;
    if (view_ && view_->word(id).residency() != Residency::kHere) missing.push_back(id);
  }
  BlockPlan block = plan_block(lengths);
  std::optional<Error> failure;
  const auto allocated = allocate(block, failure);
  if (!allocated) {
    log(shared_.environment.log, LogLevel::kError, "the loader ends: {}", failure->message);
    shared_.arena->close();
    return false;
  }
  reading->plan = plan_;
  reading->step = batch.step;
  reading->block = *allocated;
  reading->bytes = block.size;
  reading->left = static_cast<std::uint32_t>(batch.items.size());
  shared_.arena->block(*allocated).count = static_cast<std::uint32_t>(batch.items.size());
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    block.rows[i].id = batch.items[i].value;
    shared_.arena->rows(*allocated)[i] = block.rows[i];
  }
  reading->items = std::move(batch.items);
  // The daemon's own orders follow a strict order, as far ahead as there is room for: to ask for
  // what is further away would push out what is nearer. Nobody but this job knows a list.
  const bool ask_late = shared_.strict() && !plan_->listed;
  if (ask_late) reading->asked_late = std::move(missing);
  const bool wanted = shared_.state.change([&](FeedState& s) {
    if (s.plan != plan_ || s.closed) return false;
    ++s.drawn;
    s.held_bytes += reading->bytes;
    s.entries[reading->step].reading = reading;
    return true;
  });
  if (!wanted) {
    shared_.arena->drop_reference(*allocated);
    return true;
  }
  if (failure) {
    readers_.fail(reading, *failure);
    return !stop.stop_requested();
  }
  if (!ask_late) shared_.dataset->want(missing);
  readers_.add(std::move(reading));
  return !stop.stop_requested();
}

void DrawThread::wait_for_arrivals(std::stop_token stop) {
  const auto pause = [&](Duration time) {
    shared_.state.wait_for(
        stop, time, [](const FeedState& s) { return s.closed; }, [](FeedState&) {});
  };
  if (!view_) return pause(kTick);
  pause(kLeastPause);
  if (!stop.stop_requested()) view_->wait_change(seen_changes_, kTick);
}

}  // namespace quiver::cache
