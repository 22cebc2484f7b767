// Catalog: what the store knows of its disk, in memory: which item lies where, which segments there
// are, and what they cost. Pure: no I/O, so that it can be compared with a model.
//
// Rows belong to their segment, in the order of its index file, 41 bytes each; the table from hash
// to row has 8 bytes a slot. So an eviction frees the memory of its items at once. Invariant: the
// table leads to a row if and only if that row is live, and no two live rows have the same hash.
// Not thread-safe: the store keeps it in a Guarded.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "cache/store/item_table.h"
#include "cache/store/segment_format.h"
#include "cache/store/store.h"

namespace quiver::cache {

class Catalog {
 public:
  explicit Catalog(Bytes limit) : limit_(limit) {}

  // The budget: what is allocated, what writes in progress may add, what cannot be evicted.
  Status reserve(Bytes bytes);  // kNoSpace
  void unreserve(Bytes bytes) { reserved_ -= bytes; }
  void set_limit(Bytes limit) { limit_ = limit; }
  void set_overhead(Bytes bytes) { overhead_ = bytes; }
  Bytes allocated() const { return allocated_ + overhead_; }

  void add_segment(SegmentId id, const Lane& lane, bool open);
  bool has(SegmentId id) const { return segments_.contains(id.value); }
  bool is_empty(SegmentId id) const;  // sealed, and without items, suspect ones included
  void set_allocated(SegmentId id, Bytes bytes);
  Bytes allocated_of(SegmentId id) const;
  void set_sealed(SegmentId id);
  void set_lane(SegmentId id, const Lane& lane);
  std::optional<Lane> lane_of(SegmentId id) const;
  bool is_open(SegmentId id) const;
  // Its items are no longer found and it is listed no more, but it stays in the books until
  // remove_segment; what it has allocated then counts as leaving. Nullopt when it is not there or
  // is leaving already.
  std::optional<Bytes> begin_evict(SegmentId id);
  // False: its eviction failed, it stays for now. Returns whether that is news.
  bool set_leaving(SegmentId id, bool leaving);
  void remove_segment(SegmentId id);
  // A segment whose files are there and cannot be read now: counted, and never touched.
  void add_unusable(SegmentId id, Bytes allocated);
  std::size_t clear();  // all segments; returns how many had been listed

  // What was written and is perhaps not on the disk itself yet.
  void mark_dirty(SegmentId id);
  std::vector<SegmentId> take_dirty(bool open_ones);  // they are not dirty from then on

  // An item was written at the end of the segment. Returns where it is to be found: elsewhere, when
  // another writer was faster (the row is then dead); nullopt when the segment has gone.
  std::optional<StoredAt> add_item(SegmentId id, const IndexRow& row);
  // The same; an earlier row of this hash is dead from now on, and `replaced` names it.
  std::optional<StoredAt> move_item(SegmentId id, const IndexRow& row,
                                    std::optional<RowRef>& replaced);
  // A row read back from an index file; nullopt for one that is damaged or reaches beyond the data.
  // Of two with the same hash the later wins. A suspect row is not found until verified.
  void recover_row(SegmentId id, const std::optional<IndexRow>& row, bool suspect);
  void reserve_rows(SegmentId id, std::size_t rows);
  void expect_items(std::uint64_t items) { table_.reserve(items); }

  std::optional<StoredAt> find(const Sha256& hash) const;
  bool holds(const StoredAt& at) const { return live_row(at).has_value(); }
  std::optional<RowRef> forget(const Sha256& hash);
  std::optional<RowRef> forget_at(const StoredAt& at);
  void count_quarantined() { ++quarantined_; }

  struct Suspect {
    RowRef ref;
    Sha256 hash;
    StoredAt at;
  };
  // The next suspect items, up to `budget` bytes, all of one segment; the first whatever its length
  // if `at_least_one`.
  std::vector<Suspect> take_suspects(Bytes budget, bool at_least_one);
  // Found to be right (true) or wrong. Of an item that has come anew meanwhile the old row is dead.
  void judge(const Suspect& suspect, bool good);
  bool any_suspects() const { return suspect_rows_ > 0; }

  std::vector<SegmentInfo> segments() const;
  std::vector<Sha256> items_of(SegmentId id) const;
  StoreStats stats() const;

 private:
  // `end` has the state in its upper bits: 1 live, 2 suspect, 0 dead. The item begins where the row
  // before it ends.
  struct [[gnu::packed]] Row {
    std::array<std::uint8_t, 32> hash{};
    std::uint32_t checksum = 0;
    std::array<std::uint8_t, 5> end{};
  };
  static_assert(sizeof(Row) == 41);
  enum class State : std::uint8_t { kDead = 0, kLive = 1, kSuspect = 2 };
  struct Segment {
    Lane lane;
    std::vector<Row> rows;
    Bytes allocated;
    std::uint64_t end = 0;  // of the last row
    std::uint32_t live = 0, suspect = 0;
    std::uint32_t scrubbed = 0;  // rows that take_suspects has handed out
    bool open = false, evicting = false, leaving = false, unusable = false;
  };

  static Row make_row(const Sha256& hash, std::uint32_t checksum, std::uint64_t end, State state);
  static State state_of(const Row& row) { return static_cast<State>(row.end[4] >> 6); }
  static void set_state(Row& row, State state);
  static std::uint64_t end_of(const Row& row);
  static void set_end(Row& row, std::uint64_t end);
  static StoredAt place_of(SegmentId id, const Segment& segment, std::uint32_t row);
  Sha256 hash_of(RowRef ref) const;
  auto hasher() const {
    return [this](RowRef ref) { return hash_of(ref); };
  }
  std::optional<RowRef> live_row(const StoredAt& at) const;
  void kill(RowRef ref);
  void add_suspects(std::int64_t rows, std::int64_t bytes);

  ItemTable table_;
  std::unordered_map<std::uint32_t, Segment> segments_;
  std::deque<SegmentId> to_scrub_;
  std::set<std::uint32_t> dirty_;
  Bytes limit_, allocated_, reserved_, overhead_, leaving_;
  std::size_t evicting_ = 0, unusable_ = 0;
  std::uint64_t quarantined_ = 0, suspect_rows_ = 0, suspect_bytes_ = 0;
};

}  // namespace quiver::cache
