// DatasetState: all that the daemon knows of one dataset.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "cache/client/protocol.h"
#include "cache/manifest/manifest.h"
#include "cache/policy/fetch_ledger.h"
#include "cache/policy/pinned_set.h"
#include "cache/policy/staging.h"
#include "cache/policy/window.h"
#include "cache/server/pin_rule.h"
#include "cache/server/read_log.h"
#include "cache/server/recent.h"
#include "cache/store/store.h"
#include "cache/view/job_board.h"
#include "cache/view/view.h"
#include "io/file.h"

namespace quiver::cache {

// What a rank has got: by its own counters, and of that what another job's fetch had brought.
struct Served {
  JobCounters counters;
  std::uint64_t shared = 0;
};

// One rank of a job: the board that its process writes, and what it last reported.
struct RankEntry {
  std::uint64_t session = 0;
  io::Fd board;
  std::uint32_t batch_size = 1;
  std::optional<ReportRequest> report;

  // As the board was when it was last looked at.
  std::uint64_t sequence = 0;
  BoardEpoch epoch;
  Pace pace;
  Served served;
  std::uint32_t taken = 0;  // of the epoch's part
  Instant moved_at{};       // when that was seen to change, and about how long it takes to
  Duration usual_gap{};
  std::vector<std::uint64_t> settled_words, taken_words;
  Recent<Served> recent;
};

struct JobEntry {
  JobId number;
  std::string name;
  std::uint32_t world = 1;
  std::map<std::uint32_t, RankEntry> ranks;
  double rate = 0;  // bytes/s that it would take if it never waited, as last known; 0: not known
  std::optional<std::uint64_t> led_epoch;  // that it was in when it was last seen to lead
};

// Staged bytes in a segment leave together: who still holds what in which.
using StagedHolds = std::map<SegmentId, std::uint32_t>;

// Made on a connection's thread (build(), which takes as long as the manifest is large), then owned
// and used by the control thread alone, until the dataset is dropped.
// Invariant: a word of the view says `here` only while the store has the item there; the items that
// the plan holds and that lie in staged segments are counted in the StagedHolds.
class DatasetState {
 public:
  // Publishes everything that the store has of it. What is evicted meanwhile is found by settle().
  // `log`: of a provisional manifest, what was read of it before; nullopt: none is kept.
  static Result<std::unique_ptr<DatasetState>> build(std::shared_ptr<const Manifest> manifest,
                                                     const Store& store,
                                                     std::optional<ReadLog> log = std::nullopt);

  // On the control thread, once: takes back words whose segments went while it was built.
  void settle(const Store& store);

  static Bytes memory_of(const Manifest& manifest);  // what one of it costs
  Bytes memory() const { return memory_of(*manifest_); }
  std::uint32_t size() const { return manifest_->size(); }
  const Manifest& manifest() const { return *manifest_; }
  std::shared_ptr<const Manifest> shared_manifest() const { return manifest_; }
  const std::string& public_id() const { return public_id_; }
  // The items with this content, or that nobody has read and that are named so.
  std::span<const ItemId> entries(const Sha256& hash) const;
  // The hash of its bytes; of one that is unread its name.
  const Sha256& content(ItemId id) const;
  bool provisional() const { return !unread_.empty(); }
  bool unread(ItemId id) const { return provisional() && unread_[id.value]; }
  std::uint32_t unread_items() const { return unread_count_; }
  // The items named so have been read, and hold this.
  void read_as(const Sha256& name, const Sha256& content);
  const PinRule& pin_rule() const { return pin_rule_; }
  // Its manifest has been written: what was noted of its reading goes.
  void became(const Sha256& root);
  const std::optional<Sha256>& whole() const { return whole_; }
  const std::vector<ItemId>& by_hash() const { return order_.items(); }
  Item item(ItemId id) const { return manifest_->item(id); }

  ViewWriter& view() { return view_; }
  StagingPlan& plan() { return plan_; }
  const StagingPlan& plan() const { return plan_; }
  const PinnedSet& pinned() const { return pinned_; }
  bool here(ItemId id) const { return view_.word(id).residency() == Residency::kHere; }
  std::uint32_t items_here() const { return items_here_; }
  Bytes bytes_here() const { return bytes_here_; }
  // Of what is pinned, wherever it lies.
  std::uint32_t pinned_here() const { return pinned_here_; }
  Bytes pinned_bytes_here() const { return pinned_bytes_here_; }
  Bytes need() const { return need_; }
  Bytes distinct_bytes() const { return distinct_; }
  Bytes share() const { return share_; }
  Bytes window() const { return window_; }

  // A new division: which items are pinned, and the flags of those that are here.
  void set_share(Bytes share, const Window& window, const Store& store, StagedHolds& holds);
  // All entries of this content are here now.
  void publish(const Sha256& hash, const StoredAt& at, const Store& store, StagedHolds& holds);
  // All entries of this content that lie in `segment` (nullopt: in any) are gone. Returns how many.
  std::uint32_t withdraw(const Sha256& hash, std::optional<SegmentId> segment, StagedHolds& holds);
  void withdraw_all(StagedHolds& holds);
  // The plan holds it from now on, or no more: the segment in which it is staged stays as long.
  void hold(ItemId id, StagedHolds& holds);
  void let_go(ItemId id, StagedHolds& holds);
  void let_all_go(StagedHolds& holds);

  Lane lane(const Sha256& hash) const;
  Bytes segment_limit(bool pinned) const;

  std::map<Token, JobEntry> jobs;
  ViewCounters counters;
  FetchLedger ledger;
  OriginStats requests;                // of sessions that have ended
  Recent<std::uint64_t> recent_bytes;  // from the origin
  std::uint64_t last_used = 0;
  std::optional<Instant> unused_since;  // no session has it open
  Instant next_look{};                  // at the boards
  Instant paused_until{};               // after errors of the origin
  Duration pause{};
  std::string link;                   // over which it comes, as link_of() names it
  double link_rate = 0;               // bytes/s that this gives; 0: not known
  std::string share_reason;           // why it has the share that it has, as one sentence
  bool small_share_told = false;      // that its share holds hardly a step
  std::uint64_t link_mark = 0;        // counters.origin_bytes a second ago
  std::uint32_t rescan = UINT32_MAX;  // items from here on are looked up in the store again
  struct Warm {
    bool asked = false, active = false;
    std::size_t next = 0;  // in by_hash()
    std::uint64_t failed = 0;
    std::string first_error;
    std::unordered_set<Sha256> on_the_way;
  } warm;

 private:
  DatasetState(std::shared_ptr<const Manifest> manifest, ViewWriter view);
  void know(ItemId id, const Sha256& content);
  void choose(Bytes share, Bytes pinned);
  Bytes length(ItemId id) const { return manifest_->item(id).length; }
  Bytes staged_cost(ItemId id) const;
  Again why_gone(ItemId id, bool evicted) const;
  void show(ItemId id, const StoredAt& at, bool pinned_lane, StagedHolds* holds);

  const std::shared_ptr<const Manifest> manifest_;
  const std::string public_id_;
  const HashOrder order_;
  // Of a provisional manifest: which items nobody has read, what the others hold, and who holds it.
  std::vector<bool> unread_;
  std::uint32_t unread_count_ = 0;
  std::vector<Sha256> contents_;
  std::unordered_map<Sha256, std::vector<ItemId>> by_content_;
  PinRule pin_rule_;
  std::optional<ReadLog> log_;
  std::optional<Sha256> whole_;  // the root of the manifest that it became
  ViewWriter view_;
  PinnedSet pinned_;
  StagingPlan plan_;
  std::unordered_map<ItemId, SegmentId> held_in_;
  Bytes need_, distinct_, share_, window_;
  std::uint32_t items_here_ = 0;
  Bytes bytes_here_;
  std::uint32_t pinned_here_ = 0;
  Bytes pinned_bytes_here_;
};

}  // namespace quiver::cache
