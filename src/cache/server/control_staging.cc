// The staging duty: reads what jobs still need, keeps such items arriving, lets go of the rest.
#include <algorithm>
#include <bit>

#include "cache/server/control.h"
#include "cache/view/job_board.h"

namespace quiver::cache {

void Control::look_at_boards(DatasetState& dataset, Instant now) {
  for (auto& [token, job] : dataset.jobs) {
    for (auto& [number, rank] : job.ranks) {
      auto copy = read_job_board(context_.files, rank.board.get(), dataset.size());
      if (!copy || !*copy) continue;  // nonsense harms nobody but its own job
      look_at_board(dataset, job.number, rank, **copy, now);
      RankBoard board;
      board.moving = now - rank.moved_at <= std::max(limits::kStandsStill, rank.usual_gap * 3);
      board.epoch = (*copy)->epoch.epoch;
      board.order_seed = (*copy)->epoch.order_seed;
      board.strict = (*copy)->epoch.strict;
      board.shuffled = (*copy)->epoch.shuffled;
      board.active = (*copy)->epoch.active;
      board.listed = (*copy)->epoch.listed;
      board.items_per_second = (*copy)->pace.items_per_second;
      board.part = (*copy)->epoch.part;
      board.settled = std::move((*copy)->settled);
      board.taken = std::move((*copy)->taken);
      dataset.plan().update(job.number, number, std::move(board));
    }
  }
  follow_leader(dataset);
  release(dataset);
  const bool all_here = dataset.items_here() == dataset.size();
  const Duration pause =
      all_here && dataset.plan().at_rest() ? limits::kLookIdle : limits::kLookBusy;
  // With very many items a look takes long: never more than a twentieth of the time.
  dataset.next_look = now + std::max(pause, (context_.clock.now() - now) * 20);
}

namespace {

using Words = std::vector<std::uint64_t>;

Words added(const Words& after, const Words& before) {
  Words words(after.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = after[i] & ~(i < before.size() ? before[i] : 0);
  }
  return words;
}

std::uint32_t count_bits(const Words& words) {
  std::uint32_t n = 0;
  for (const std::uint64_t word : words) n += static_cast<std::uint32_t>(std::popcount(word));
  return n;
}

}  // namespace

// How the rank fares. What it took since the last look is what bits have risen, those that rose
// just before it began anew too. Of a part of the dataset the bits that were set from the beginning
// are not known: what it took before the first look is not counted as shared.
void Control::look_at_board(DatasetState& dataset, JobId job, RankEntry& rank,
                            const BoardCopy& board, Instant now) {
  const auto count = [&](const Words& taken, const Words& settled) {
    rank.served.shared += dataset.ledger.shared(job, taken, settled);
  };
  const bool same = rank.sequence == board.sequence;
  if (!same && rank.sequence != 0) {
    auto last = read_taken(context_.files, rank.board.get(), dataset.size(), rank.sequence);
    if (last && *last) {
      count(added(**last, rank.taken_words), rank.settled_words);
      rank.taken_words = **std::move(last);
    }
  }
  if (rank.sequence != 0 && (same || rank.epoch.epoch == board.epoch.epoch)) {
    count(added(board.taken, rank.taken_words), board.settled);
  } else if (board.epoch.part == dataset.size()) {
    count(board.taken, board.settled);
  }
  const std::uint32_t others = dataset.size() - board.epoch.part;
  const std::uint32_t set = count_bits(board.taken);
  const std::uint32_t taken = std::min(board.epoch.part, set - std::min(set, others));
  if (!same || taken != rank.taken) {
    if (rank.moved_at != Instant{}) {
      rank.usual_gap = std::max(now - rank.moved_at, rank.usual_gap * 3 / 4);
    }
    rank.moved_at = now;
  }
  rank.taken = taken;
  rank.sequence = board.sequence;
  rank.epoch = board.epoch;
  rank.pace = board.pace;
  rank.served.counters = board.counters;
  rank.settled_words = board.settled;
  rank.taken_words = board.taken;
}

void Control::follow_leader(DatasetState& dataset) {
  for (auto& [token, job] : dataset.jobs) {
    if (dataset.plan().leader() != job.number) continue;
    std::optional<std::uint64_t> epoch;
    for (const auto& [number, rank] : job.ranks) {
      if (rank.epoch.active) epoch = std::min(epoch.value_or(UINT64_MAX), rank.epoch.epoch);
    }
    if (job.led_epoch && epoch && *job.led_epoch != *epoch) dataset.ledger.begin_epoch();
    if (epoch) job.led_epoch = epoch;
  }
}

void Control::release(DatasetState& dataset) {
  for (const ItemId id : dataset.plan().release()) {
    dataset.ledger.left(id, dataset.plan().wanted(id) ? Again::kLeftStaging : Again::kNewEpoch);
    dataset.let_go(id, holds_);
  }
  dataset.view().retire_until(std::min(dataset.plan().tail(), dataset.view().head()));
}

void Control::order_more(DatasetState& dataset, Instant now) {
  if (now < dataset.paused_until || (dataset.jobs.empty() && !dataset.warm.active)) return;
  const std::size_t most = static_cast<std::size_t>(context_.settings.fetch_concurrency) * 2;
  for (std::uint32_t n = 0;
       n < limits::kOrdersPerTurn && queue_.staged_of(dataset.public_id()) < most; ++n) {
    const auto order = dataset.plan().next();
    if (!order) break;
    stage(dataset, *order);
  }
  if (dataset.warm.active) warm_more(dataset);
}

void Control::stage(DatasetState& dataset, const Order& order) {
  dataset.view().order(order.item);
  changed_.insert(&dataset);
  if (order.early && order.fetch) dataset.ledger.early(order.item);
  const Sha256 hash = dataset.content(order.item);
  if (!order.fetch) return dataset.hold(order.item, holds_);
  if (const auto at = stored(dataset, order.item)) return publish(hash, *at);
  if (remembered(hash, dataset) != nullptr || too_large(dataset.item(order.item))) {
    return dataset.plan().failed(order.item);
  }
  const bool known = flights_.contains(hash);
  Flight& flight = flight_for(dataset, order.item);
  flight.staged = true;
  if (known) return;
  flight.for_job = dataset.plan().leader().value_or(JobId{});
  queue_.push_back(entry_of(hash, flight));
}

// Fills what is pinned in hash order, as far as the threads have nothing better to do.
void Control::warm_more(DatasetState& dataset) {
  const auto& order = dataset.by_hash();
  auto& warm = dataset.warm;
  const auto most = static_cast<std::size_t>(context_.settings.fetch_concurrency);
  while (warm.next < order.size() && queue_.staged_of(dataset.public_id()) < most &&
         warm.on_the_way.size() < 2 * most) {
    const ItemId id = order[warm.next++];
    const Sha256 hash = dataset.content(id);
    if (!dataset.pinned().items.contains(id) || dataset.here(id)) continue;
    if (const auto error = too_large(dataset.item(id))) {
      ++warm.failed;
      if (warm.first_error.empty()) warm.first_error = error->message;
      continue;
    }
    if (const auto at = stored(dataset, id)) {
      publish(hash, *at);
      continue;
    }
    const bool known = flights_.contains(hash);
    Flight& flight = flight_for(dataset, id);
    flight.warm = true;
    warm.on_the_way.insert(hash);
    if (!known) queue_.push_back(entry_of(hash, flight));
  }
}

Result<WarmProgress> Control::warm(std::uint64_t session, std::uint32_t handle) {
  DatasetState& dataset = *TRY(dataset_of(session, handle))
  ->dataset;
  auto& warm = dataset.warm;
  if (!warm.asked) {
    warm = {};
    warm.asked = warm.active = true;
  }
  WarmProgress progress;
  WarmReply& reply = progress.reply;
  reply.items = dataset.size();
  reply.items_here = dataset.pinned_here();
  reply.bytes_here = dataset.pinned_bytes_here().value;
  reply.items_wanted = dataset.pinned().items.count();
  reply.bytes_wanted = dataset.pinned().bytes.value;
  reply.items_failed = warm.failed;
  reply.first_error = warm.first_error;
  progress.done = warm.next == dataset.by_hash().size() && warm.on_the_way.empty();
  warm.active = !progress.done;
  warm.asked = !progress.done;  // whoever asks after the end has it filled again
  return progress;
}

}  // namespace quiver::cache
