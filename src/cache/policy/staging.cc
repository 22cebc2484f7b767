#include "cache/policy/staging.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "base/check.h"

namespace quiver::cache {

namespace {

// Another job takes the lead only when it is 10 % faster: a lead that flutters mixes two orders.
constexpr double kStays = 1.1;
// Of jobs that are about as fast a strict one leads: it costs nothing then, and else all it reads.
constexpr double kStrictLeads = 1.25;
constexpr std::uint64_t kEarlyPart = 8;  // of the window, for the next epoch

bool bit_of(const std::vector<std::uint64_t>& words, ItemId id) {
  return words[id.value >> 6] >> (id.value & 63) & 1;
}

std::uint32_t count_bits(const std::vector<std::uint64_t>& words) {
  std::uint32_t n = 0;
  for (const std::uint64_t w : words) n += static_cast<std::uint32_t>(std::popcount(w));
  return n;
}

double pace(const std::map<std::uint32_t, RankBoard>& ranks) {
  double sum = 0;
  for (const auto& [rank, board] : ranks) sum += board.active ? board.items_per_second : 0;
  return sum;
}

}  // namespace

StagingPlan::StagingPlan(std::uint32_t items, std::function<Bytes(ItemId)> staged_bytes)
    : items_(items), staged_bytes_(std::move(staged_bytes)), where_(items, Where::kAbsent) {}

bool StagingPlan::update(JobId id, std::uint32_t rank, RankBoard board) {
  const std::size_t words = (std::size_t{items_} + 63) / 64;
  if (board.settled.size() != words || board.taken.size() != words) return false;
  const auto known = jobs_.find(id);
  if (known == jobs_.end()) {
    if (jobs_.size() == kMaxJobs) return false;
    const std::uint64_t bit = std::uint64_t{1} << std::countr_one(bits_in_use_);
    bits_in_use_ |= bit;
    for (Place& place : line_) place.served &= ~bit;
    jobs_[id].bit = bit;
  }
  Job& job = jobs_[id];
  board.taken_count = count_bits(board.taken);
  // What was taken between the last look and an epoch switch may have been missed; what we saw
  // counts.
  if (const auto old = job.ranks.find(rank);
      old != job.ranks.end() && old->second.epoch != board.epoch) {
    note_served();
    job.goes_on = board.epoch == old->second.epoch + 1;
  }
  job.ranks.insert_or_assign(rank, std::move(board));
  note_served();
  choose_leader();
  stale_ = true;
  return true;
}

void StagingPlan::remove(JobId id, std::uint32_t rank) {
  const auto job = jobs_.find(id);
  if (job == jobs_.end()) return;
  job->second.ranks.erase(rank);
  if (job->second.ranks.empty()) {
    bits_in_use_ &= ~job->second.bit;
    jobs_.erase(job);
  }
  choose_leader();
  stale_ = true;
}

// Settled is what was pinned when the epoch began: if it was lost since, it is wanted again.
bool StagingPlan::rank_wants(const RankBoard& board, ItemId id) const {
  if (!board.active || bit_of(board.taken, id)) return false;
  return !(bit_of(board.settled, id) && where_[id.value] == Where::kPinned);
}

bool StagingPlan::wants(const Job& job, ItemId id, const std::uint64_t* epoch) const {
  return std::any_of(job.ranks.begin(), job.ranks.end(), [&](const auto& entry) {
    return (epoch == nullptr || entry.second.epoch == *epoch) && rank_wants(entry.second, id);
  });
}

// Its owner wants a place in the epoch for which it was ordered, and before it; any other job once.
bool StagingPlan::wants_place(JobId id, const Job& job, const Place& place) const {
  if (id == place.owner) {
    const bool to_come = place.early && std::ranges::all_of(job.ranks, [&](const auto& r) {
                           return r.second.active && r.second.epoch + 1 == place.epoch;
                         });
    return to_come || wants(job, place.item, &place.epoch);
  }
  return (place.served & job.bit) == 0 && wants(job, place.item);
}

bool StagingPlan::wanted(ItemId id) const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [&](const auto& entry) { return wants(entry.second, id); });
}

void StagingPlan::note_served() {
  for (Place& place : line_) {
    if (!place.live) continue;
    for (const auto& [id, job] : jobs_) {
      const bool active = std::any_of(job.ranks.begin(), job.ranks.end(),
                                      [](const auto& r) { return r.second.active; });
      if (active && !wants(job, place.item)) place.served |= job.bit;
    }
  }
}

// A strict job can take a place only when its turn comes: one of another job's order is no help.
bool StagingPlan::strict(const Job& job) {
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [](const auto& r) { return r.second.active && r.second.strict; });
}

// Jobs that only the link holds back are equally fast.
double StagingPlan::pace_to_lead(JobId id, const Job& job) const {
  const double own = pace(job.ranks);
  const double bound = link_pace_ > 0 ? std::min(own, link_pace_) : own;
  return bound * (leader_ == id ? kStays : 1.0) * (strict(job) ? kStrictLeads : 1.0);
}

bool StagingPlan::rides(JobId id) const {
  const auto job = jobs_.find(id);
  return job != jobs_.end() && leader_ != id && pace(job->second.ranks) < link_pace_;
}

void StagingPlan::choose_leader() {
  std::optional<JobId> best;
  std::tuple<bool, double, bool, bool> best_claim{false, -1, false, false};
  for (const auto& [id, job] : jobs_) {
    const bool may_lead = std::any_of(job.ranks.begin(), job.ranks.end(), [](const auto& r) {
      return r.second.active && !r.second.listed;
    });
    if (!may_lead) continue;
    const bool moving = std::ranges::any_of(
        job.ranks, [](const auto& r) { return r.second.active && r.second.moving; });
    const std::tuple claim(moving, pace_to_lead(id, job), strict(job), leader_ == id);
    if (claim > best_claim) best = id, best_claim = claim;
  }
  leader_ = best;
}

std::optional<Permutation> StagingPlan::order_of(const RankBoard& board,
                                                 std::uint64_t epoch) const {
  if (board.strict && !board.shuffled) return std::nullopt;  // ascending
  const Purpose purpose = board.strict ? Purpose::kStrictOrder : Purpose::kFetchOrder;
  return Permutation(derive_key(board.order_seed, epoch, purpose), items_);
}

void StagingPlan::start(JobId job, std::uint64_t epoch) {
  Cursor cursor;
  cursor.job = job;
  cursor.epoch = epoch;
  const RankBoard* board = nullptr;
  for (const auto& [rank, its] : jobs_.at(job).ranks) {
    if (!its.active || its.epoch != epoch) continue;
    board = &its;
    cursor.had[rank] = its.taken_count;
  }
  CHECK(board != nullptr);
  cursor.order = order_of(*board, epoch);
  cursor_ = std::move(cursor);
}

// Only where all that is not pinned will be wanted: what part of it the ranks here get is not known
// before they have begun.
bool StagingPlan::may_start_early(const Job& job) const {
  std::uint64_t parts = 0;
  for (const auto& [rank, board] : job.ranks) {
    if (!board.active || board.epoch != cursor_->epoch) return false;
    parts += board.part;
  }
  return job.goes_on && parts == items_;
}

void StagingPlan::start_early(const RankBoard& board) {
  ++cursor_->epoch;
  cursor_->position = 0;
  cursor_->ended = false;
  cursor_->early = true;
  cursor_->ordered = Bytes(0);
  cursor_->order = order_of(board, cursor_->epoch);
}

// A rank has joined this epoch, or begun it anew: places that were passed for want of it come
// again.
bool StagingPlan::board_grew(const Job& job) const {
  for (const auto& [rank, board] : job.ranks) {
    if (!board.active || board.epoch != cursor_->announced()) continue;
    const auto had = cursor_->had.find(rank);
    if (had == cursor_->had.end() || board.taken_count < had->second) return true;
  }
  return false;
}

// Puts the cursor where the leader's next order is; false when there is none. An epoch that is
// ordered to its end is followed by one that a board has announced, or by the beginning of one that
// is likely to come.
bool StagingPlan::seek() {
  if (!leader_ || items_ == 0) return false;
  const Job& job = jobs_.at(*leader_);
  std::optional<std::uint64_t> first, later;
  for (const auto& [rank, board] : job.ranks) {
    if (!board.active) continue;
    first = std::min(first.value_or(board.epoch), board.epoch);
    if (cursor_ && board.epoch > cursor_->announced()) {
      later = std::min(later.value_or(board.epoch), board.epoch);
    }
  }
  if (!first) return false;
  const bool same = cursor_ && cursor_->job == *leader_;
  const bool present = same && std::any_of(job.ranks.begin(), job.ranks.end(), [&](const auto& r) {
                         return r.second.active && r.second.epoch == cursor_->announced();
                       });
  if (!same || (!present && !later)) {
    start(*leader_, *first);
  } else if (present && board_grew(job)) {
    start(*leader_, cursor_->announced());
  } else if ((!present || cursor_->ended || cursor_->early) && later) {
    start(*leader_, *later);
  } else if (cursor_->ended && !cursor_->early && may_start_early(job)) {
    start_early(job.ranks.begin()->second);
  }
  return !cursor_->ended;
}

bool StagingPlan::has_place_for(const Job& leader, ItemId id) const {
  const auto found = place_of_.find(id);
  if (found == place_of_.end()) return false;
  const Place& place = line_[found->second - base_];
  if (place.owner == *leader_) return place.epoch == cursor_->epoch;
  return !strict(leader) && (place.served & leader.bit) == 0;
}

std::optional<Order> StagingPlan::next() {
  more_ = false;
  if (!seek()) return std::nullopt;
  recount();
  const Job& job = jobs_.at(*leader_);
  const Bytes credit = jobs_.size() > 1 ? window_ / 2 : window_;
  for (int steps = 0; steps < 4096; ++steps) {
    if (cursor_->position == items_) {
      cursor_->ended = true;
      if (!seek()) return std::nullopt;
      continue;
    }
    const ItemId id(cursor_->order ? cursor_->order->at(cursor_->position) : cursor_->position);
    const bool will_want =
        cursor_->early ? where_[id.value] != Where::kPinned : wants(job, id, &cursor_->epoch);
    if (!will_want || has_place_for(job, id)) {
      ++cursor_->position;
      continue;
    }
    const Bytes bytes = where_[id.value] == Where::kPinned ? Bytes(0) : staged_bytes_(id);
    if (cursor_->early) {
      // One stay serves a job once: what it still wants in this epoch is not yet there for the
      // next.
      if (wants(job, id)) return std::nullopt;
      const bool first = cursor_->ordered.value == 0;
      if (!first && cursor_->ordered + bytes > window_ / kEarlyPart) return std::nullopt;
    }
    if (ahead_.value != 0 && ahead_ + bytes > credit) return std::nullopt;
    if (line_.size() + 1 >= std::bit_ceil(std::max<std::size_t>(items_, 64))) return std::nullopt;
    ++cursor_->position;
    return place_order(id, bytes);
  }
  more_ = true;
  return std::nullopt;
}

std::optional<Order> StagingPlan::place_order(ItemId id, Bytes bytes) {
  // Still staged from an earlier stay: it keeps its place in the new order and lies where it lies.
  if (const auto old = place_of_.find(id); old != place_of_.end()) {
    Place& place = line_[old->second - base_];
    place.live = false;
    held_ -= place.bytes;
  }
  if (const auto guest = guest_of_.find(id); guest != guest_of_.end()) {
    held_ -= guest->second;
    guest_of_.erase(guest);
    std::erase_if(guests_, [id](const Guest& g) { return g.item == id; });
  }
  const Order order{id, head(), where_[id.value] == Where::kAbsent, cursor_->early};
  cursor_->ordered += bytes;
  Place place;
  place.item = id;
  place.early = cursor_->early;
  place.bytes = bytes;
  place.start = ordered_bytes_;
  place.owner = *leader_;
  place.epoch = cursor_->epoch;
  line_.push_back(place);
  place_of_[id] = order.place;
  ordered_bytes_ += bytes.value;
  ahead_ += bytes;
  held_ += bytes;
  if (order.fetch) where_[id.value] = Where::kOnTheWay;
  return order;
}

bool StagingPlan::at_rest() {
  return !more_ && place_of_.empty() && !seek();
}

void StagingPlan::arrived(ItemId id, bool pinned) {
  const bool was_here = here(id);
  where_[id.value] = pinned ? Where::kPinned : Where::kStaged;
  if (was_here) return;
  const auto found = place_of_.find(id);
  if (found == place_of_.end()) return;
  Place& place = line_[found->second - base_];
  place.start = std::max(place.start, reached_);
}

void StagingPlan::failed(ItemId id) {
  if (where_[id.value] == Where::kOnTheWay) where_[id.value] = Where::kAbsent;
  evicted(id);
}

void StagingPlan::evicted(ItemId id) {
  if (where_[id.value] != Where::kOnTheWay) where_[id.value] = Where::kAbsent;
  std::vector<ItemId> leaving;
  if (const auto found = place_of_.find(id);
      found != place_of_.end() && where_[id.value] == Where::kAbsent) {
    drop_place(line_[found->second - base_], leaving);
  }
  if (guest_of_.contains(id)) {
    guest_of_.erase(id);
    std::erase_if(guests_, [id](const Guest& g) { return g.item == id; });
  }
  stale_ = true;
}

void StagingPlan::guest(ItemId id) {
  if (holds(id) || where_[id.value] != Where::kStaged) return;
  guests_.push_back(Guest{id, wanted(id)});
  guest_of_[id] = staged_bytes_(id);
  held_ += guest_of_[id];
}

std::vector<ItemId> StagingPlan::dismiss_guests() {
  std::vector<ItemId> leaving;
  for (const Guest& guest : guests_) leaving.push_back(guest.item);
  guests_.clear();
  guest_of_.clear();
  stale_ = true;
  return leaving;
}

void StagingPlan::drop_place(Place& place, std::vector<ItemId>& leaving) {
  place.live = false;
  place_of_.erase(place.item);
  if (where_[place.item.value] == Where::kStaged) leaving.push_back(place.item);
}

void StagingPlan::drop_guests(std::vector<ItemId>& leaving) {
  Bytes bytes;
  for (const auto& [id, its] : guest_of_) bytes += its;
  // When nobody leads, all of the window is theirs. What somebody still waits for may be much more
  // than what came by: it was asked for a whole batch at a time, and going is to be read again.
  const Bytes passing = leader_ ? window_ / 8 : window_;
  const Bytes awaited = leader_ ? window_ / 2 : window_;
  std::deque<Guest> staying;
  for (Guest& guest : guests_) {
    const bool still_wanted = wanted(guest.item);
    const bool served = guest.wanted && !still_wanted;
    // At least one stays however small the window: somebody is about to read it.
    const bool too_many =
        bytes > (still_wanted ? awaited : passing) && guest.item != guests_.back().item;
    guest.wanted = guest.wanted || still_wanted;
    if (!served && !too_many) {
      staying.push_back(guest);
      continue;
    }
    bytes -= guest_of_[guest.item];
    guest_of_.erase(guest.item);
    leaving.push_back(guest.item);
  }
  guests_ = std::move(staying);
}

std::vector<ItemId> StagingPlan::release() {
  std::vector<ItemId> leaving;
  const Job* leader = leader_ ? &jobs_.at(*leader_) : nullptr;
  std::uint64_t reached = 0;
  for (const Place& place : line_) {
    if (!place.live || leader == nullptr || wants_place(*leader_, *leader, place)) continue;
    reached = std::max(reached, place.start);
  }
  if (reached != 0) reached_ = reached;
  for (Place& place : line_) {
    if (!place.live) continue;
    // For a single job all of the window is ahead, whatever it took first.
    const bool outside = jobs_.size() > 1 && where_[place.item.value] != Where::kOnTheWay &&
                         place.start + (window_ / 2).value < reached;
    const bool wanted = std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
      return wants_place(entry.first, entry.second, place);
    });
    if (outside || !wanted) drop_place(place, leaving);
  }
  drop_guests(leaving);
  while (!line_.empty() && !line_.front().live) {
    line_.pop_front();
    ++base_;
  }
  stale_ = true;
  return leaving;
}

Bytes StagingPlan::ahead() {
  recount();
  return ahead_;
}

Bytes StagingPlan::held() {
  recount();
  return held_;
}

void StagingPlan::recount() {
  if (!stale_) return;
  stale_ = false;
  ahead_ = held_ = Bytes(0);
  const Job* leader = leader_ ? &jobs_.at(*leader_) : nullptr;
  for (const Place& place : line_) {
    if (!place.live) continue;
    held_ += place.bytes;
    if (leader == nullptr || (place.owner != *leader_ && strict(*leader))) continue;
    if (wants_place(*leader_, *leader, place)) ahead_ += place.bytes;
  }
  for (const auto& [id, bytes] : guest_of_) held_ += bytes;
}

}  // namespace quiver::cache
