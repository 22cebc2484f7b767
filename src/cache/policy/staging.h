// StagingPlan: what one node fetches next for one dataset, and what it lets go. A pure state
// machine: fed with the boards of jobs and with what happened to items, asked for orders and
// releases.
//
// The fastest job that moves leads. Its missing items are ordered in a fresh keyed permutation of
// all items for each of its epochs (the strict permutation for a strict job), skipping what it has.
// The orders form a line of places that never ends. Staging holds the places around what the leader
// has taken: half a window behind and half a window ahead; for a single job all of the window is
// ahead. When it is ordered to its end and is not the leader's first, an eighth of the window is
// ordered ahead for the next one, so that its first steps do not wait for a round trip.
//
// What falls outside goes, whether or not the leader has had it: to protect it jams the window for
// ever when riders lag. What was overtaken on its way, as large items are by small ones, has its
// place where the leader is when it comes. What nobody wants any more goes at once.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/units.h"
#include "cache/sampler/permutation.h"

namespace quiver::cache {

struct JobId {
  std::uint64_t value = 0;
  auto operator<=>(const JobId&) const = default;
};

// What one rank of a job says of itself, as on its board. What a rank does not want (another rank's
// part) it marks as taken.
struct RankBoard {
  std::uint64_t epoch = 0, order_seed = 0;
  bool strict = false, shuffled = true, active = true;
  bool listed = false;  // its order is not known here: it never leads
  bool moving = true;   // false: it has taken nothing for long, and leads only who stand still too
  double items_per_second = 0;
  std::uint32_t part = 0;                         // items that the epoch has for it; 0: not known
  std::vector<std::uint64_t> settled{}, taken{};  // N bits each
  std::uint32_t taken_count = 0;                  // filled in by the plan
};

struct Order {
  ItemId item;
  std::uint64_t place = 0;
  bool fetch = false;  // false: it is here or on its way already
  bool early = false;  // for an epoch that has not been announced
};

// Owned by one dataset of one daemon, lives as long as that. One thread at a time.
// Cost: 1 byte an item, 48 bytes a place that is held.
// Invariant: an item has at most one live place; the bytes of the leader's live places that it has
// not taken are at most the window ahead (or one item, when that alone is larger). The line is
// never longer than a view's ring of orders.
class StagingPlan {
 public:
  static constexpr std::size_t kMaxJobs = 64;  // of one dataset on one node

  // `staged_bytes`: what the item would occupy in staging: its length, 0 if it is to be pinned.
  StagingPlan(std::uint32_t items, std::function<Bytes(ItemId)> staged_bytes);

  void set_window(Bytes window) { window_ = window; }
  // What the link lets any job do, in items/s; 0: not known. Jobs that could do more are equal.
  void set_link_pace(double items_per_second) { link_pace_ = items_per_second; }
  // False when there are kMaxJobs others already, or the bitmaps are not of N bits.
  bool update(JobId job, std::uint32_t rank, RankBoard board);
  void remove(JobId job, std::uint32_t rank);

  // The next order, or nullopt: no leader, no credit, nothing left, or (more() is true) only a
  // pause for breath after a long stretch of items that the leader has.
  std::optional<Order> next();
  bool more() const { return more_; }
  // The leader's epoch is ordered to its end and nothing of it is held: until a board changes there
  // is nothing to do.
  bool at_rest();

  void arrived(ItemId id, bool pinned);  // it is here now
  void failed(ItemId id);                // it will not come: its place is passed
  void evicted(ItemId id);               // it was here
  // A directed fetch has brought it for somebody who may have no board. It stays until those who
  // wanted it have taken it, or until an eighth of the window is full of such items; a half, while
  // a board still wants it; all of it, when nobody leads.
  void guest(ItemId id);
  // There is no room: all guests leave, for their stay is a courtesy.
  std::vector<ItemId> dismiss_guests();
  // Staged items that leave now. They count as here until evicted() says otherwise.
  std::vector<ItemId> release();

  bool wanted(ItemId id) const;  // by any job, in the epoch that it is in
  bool holds(ItemId id) const { return place_of_.contains(id) || guest_of_.contains(id); }
  bool here(ItemId id) const { return where_[id.value] >= Where::kStaged; }
  std::optional<JobId> leader() const { return leader_; }
  // It does not lead, and its own compute paces it. One that the link paces is on its way into
  // phase with the leader.
  bool rides(JobId id) const;
  std::uint64_t head() const { return base_ + line_.size(); }
  std::uint64_t tail() const { return base_; }  // places below it are done with
  Bytes ahead();                                // ordered for the leader and not taken by it
  Bytes held();                                 // places that are live, and guests

 private:
  enum class Where : std::uint8_t { kAbsent, kOnTheWay, kStaged, kPinned };
  struct Job {
    std::uint64_t bit = 0;
    std::map<std::uint32_t, RankBoard> ranks;
    bool goes_on = false;  // it was seen to begin the epoch after another one
  };
  struct Place {
    ItemId item;
    bool live = true;
    bool early = false;  // ordered before its epoch was announced
    Bytes bytes;
    std::uint64_t start = 0;   // bytes that were ordered, or reached, before it
    std::uint64_t served = 0;  // jobs that took it at this stay: it serves a job once
    JobId owner;               // who led
    std::uint64_t epoch = 0;   // of the owner
  };
  struct Cursor {
    JobId job;
    std::uint64_t epoch = 0;
    std::uint32_t position = 0;
    std::map<std::uint32_t, std::uint32_t> had;  // by rank: items taken when it was last looked at
    std::optional<Permutation> order;            // none: ascending
    bool ended = false;
    bool early = false;  // the boards are in the epoch before
    Bytes ordered;

    std::uint64_t announced() const { return epoch - (early ? 1 : 0); }
  };

  bool rank_wants(const RankBoard& board, ItemId id) const;
  bool wants(const Job& job, ItemId id, const std::uint64_t* epoch = nullptr) const;
  bool wants_place(JobId id, const Job& job, const Place& place) const;
  static bool strict(const Job& job);
  void choose_leader();
  bool seek();
  void start(JobId job, std::uint64_t epoch);
  void start_early(const RankBoard& board);
  std::optional<Permutation> order_of(const RankBoard& board, std::uint64_t epoch) const;
  bool may_start_early(const Job& job) const;
  bool board_grew(const Job& job) const;
  double pace_to_lead(JobId id, const Job& job) const;
  void note_served();
  void drop_place(Place& place, std::vector<ItemId>& leaving);
  void drop_guests(std::vector<ItemId>& leaving);
  void recount();
  std::optional<Order> place_order(ItemId id, Bytes bytes);
  bool has_place_for(const Job& leader, ItemId id) const;

  const std::uint32_t items_;
  const std::function<Bytes(ItemId)> staged_bytes_;
  Bytes window_;
  std::map<JobId, Job> jobs_;
  std::uint64_t bits_in_use_ = 0;
  std::optional<JobId> leader_;
  std::optional<Cursor> cursor_;
  bool more_ = false;
  double link_pace_ = 0;

  std::vector<Where> where_;
  std::deque<Place> line_;  // places base_, base_ + 1, …
  std::uint64_t base_ = 0;
  std::uint64_t ordered_bytes_ = 0;
  std::uint64_t reached_ =
      0;  // bytes up to the newest place that the leader was seen to have taken
  std::unordered_map<ItemId, std::uint64_t> place_of_;  // live ones
  struct Guest {
    ItemId item;
    bool wanted = false;  // somebody's board has asked for it
  };
  std::deque<Guest> guests_;
  std::unordered_map<ItemId, Bytes> guest_of_;
  Bytes ahead_, held_;
  bool stale_ = false;  // both are to be counted anew
};

}  // namespace quiver::cache
