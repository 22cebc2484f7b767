#include "cache/store/catalog.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace quiver::cache {

Status Catalog::reserve(Bytes bytes) {
  if (allocated() + reserved_ + bytes > limit_) {
    return error(Code::kNoSpace,
                 "the cache holds {} of its {}, {} more do not fit: evict or raise disk_limit",
                 format_bytes(allocated() + reserved_), format_bytes(limit_), format_bytes(bytes));
  }
  reserved_ += bytes;
  return {};
}

Catalog::Row Catalog::make_row(const Sha256& hash, std::uint32_t checksum, std::uint64_t end,
                               State state) {
  Row row;
  row.hash = hash.bytes;
  row.checksum = checksum;
  set_end(row, end);
  set_state(row, state);
  return row;
}

void Catalog::set_state(Row& row, State state) {
  row.end[4] = static_cast<std::uint8_t>((row.end[4] & 0x3f) | static_cast<unsigned>(state) << 6);
}

std::uint64_t Catalog::end_of(const Row& row) {
  std::uint64_t end = row.end[4] & 0x3fu;
  for (int i = 3; i >= 0; --i) end = end << 8 | row.end[static_cast<std::size_t>(i)];
  return end;
}

void Catalog::set_end(Row& row, std::uint64_t end) {
  CHECK(end <= kSegmentBytes);
  for (std::size_t i = 0; i < 4; ++i) row.end[i] = static_cast<std::uint8_t>(end >> 8 * i);
  row.end[4] = static_cast<std::uint8_t>((row.end[4] & 0xc0) | end >> 32);
}

StoredAt Catalog::place_of(SegmentId id, const Segment& segment, std::uint32_t row) {
  const std::uint64_t begin = row == 0 ? 0 : end_of(segment.rows[row - 1]);
  return {id, begin, Bytes(end_of(segment.rows[row]) - begin), segment.rows[row].checksum};
}

Sha256 Catalog::hash_of(RowRef ref) const {
  return Sha256{segments_.find(ref.segment)->second.rows[ref.row].hash};
}

void Catalog::add_segment(SegmentId id, const Lane& lane, bool open) {
  Segment segment;
  segment.lane = lane;
  segment.open = open;
  CHECK(segments_.emplace(id.value, std::move(segment)).second);
}

void Catalog::set_allocated(SegmentId id, Bytes bytes) {
  const auto it = segments_.find(id.value);
  if (it == segments_.end()) return;
  allocated_ = allocated_ - it->second.allocated + bytes;
  if (it->second.leaving) leaving_ = leaving_ - it->second.allocated + bytes;
  it->second.allocated = bytes;
}

Bytes Catalog::allocated_of(SegmentId id) const {
  const auto it = segments_.find(id.value);
  return it == segments_.end() ? Bytes() : it->second.allocated;
}

bool Catalog::is_empty(SegmentId id) const {
  const auto it = segments_.find(id.value);
  return it != segments_.end() && !it->second.open && it->second.live + it->second.suspect == 0;
}

void Catalog::set_sealed(SegmentId id) {
  const auto it = segments_.find(id.value);
  if (it == segments_.end()) return;
  it->second.open = false;
  it->second.rows.shrink_to_fit();
}

void Catalog::set_lane(SegmentId id, const Lane& lane) {
  const auto it = segments_.find(id.value);
  if (it != segments_.end()) it->second.lane = lane;
}

std::optional<Lane> Catalog::lane_of(SegmentId id) const {
  const auto it = segments_.find(id.value);
  if (it == segments_.end() || it->second.evicting || it->second.unusable) return std::nullopt;
  return it->second.lane;
}

bool Catalog::is_open(SegmentId id) const {
  const auto it = segments_.find(id.value);
  return it != segments_.end() && it->second.open;
}

std::optional<Bytes> Catalog::begin_evict(SegmentId id) {
  const auto it = segments_.find(id.value);
  if (it == segments_.end() || it->second.evicting || it->second.unusable) return std::nullopt;
  Segment& segment = it->second;
  for (std::uint32_t i = 0; i < segment.rows.size(); ++i) kill({id.value, i});
  CHECK(segment.live == 0 && segment.suspect == 0);
  segment.rows = {};
  segment.end = 0;
  segment.open = false;
  segment.evicting = true;
  ++evicting_;
  set_leaving(id, true);
  return segment.allocated;
}

bool Catalog::set_leaving(SegmentId id, bool leaving) {
  const auto it = segments_.find(id.value);
  if (it == segments_.end() || it->second.leaving == leaving) return false;
  it->second.leaving = leaving;
  leaving_ = leaving ? leaving_ + it->second.allocated : leaving_ - it->second.allocated;
  return true;
}

void Catalog::remove_segment(SegmentId id) {
  const auto it = segments_.find(id.value);
  if (it == segments_.end()) return;
  CHECK(it->second.live == 0 && it->second.suspect == 0);
  set_leaving(id, false);
  evicting_ -= it->second.evicting ? 1 : 0;
  unusable_ -= it->second.unusable ? 1 : 0;
  allocated_ -= it->second.allocated;
  segments_.erase(it);
  dirty_.erase(id.value);
}

void Catalog::add_unusable(SegmentId id, Bytes allocated) {
  add_segment(id, Lane{}, false);
  segments_.at(id.value).unusable = true;
  ++unusable_;
  set_allocated(id, allocated);
}

std::size_t Catalog::clear() {
  const std::size_t listed = segments().size();
  while (!segments_.empty()) {
    const SegmentId id(segments_.begin()->first);
    begin_evict(id);
    remove_segment(id);
  }
  return listed;
}

void Catalog::mark_dirty(SegmentId id) {
  if (segments_.contains(id.value)) dirty_.insert(id.value);
}

std::vector<SegmentId> Catalog::take_dirty(bool open_ones) {
  std::vector<SegmentId> taken;
  std::erase_if(dirty_, [&](std::uint32_t number) {
    const Segment& segment = segments_.at(number);
    if (segment.open && !open_ones) return false;
    if (!segment.evicting) taken.emplace_back(number);
    return true;
  });
  return taken;
}

std::optional<StoredAt> Catalog::add_item(SegmentId id, const IndexRow& row) {
  const auto it = segments_.find(id.value);
  if (it == segments_.end() || it->second.evicting) return std::nullopt;
  Segment& segment = it->second;
  CHECK(row.offset == segment.end && segment.rows.size() < kMaxRows);
  const auto earlier = find(row.hash);
  segment.end = row.offset + row.length;
  dirty_.insert(id.value);
  segment.rows.push_back(
      make_row(row.hash, row.checksum, segment.end, earlier ? State::kDead : State::kLive));
  if (earlier) return earlier;
  const RowRef ref{id.value, static_cast<std::uint32_t>(segment.rows.size() - 1)};
  table_.insert(row.hash, ref, hasher());
  ++segment.live;
  return place_of(id, segment, ref.row);
}

std::optional<StoredAt> Catalog::move_item(SegmentId id, const IndexRow& row,
                                           std::optional<RowRef>& replaced) {
  const auto it = segments_.find(id.value);
  if (it == segments_.end() || it->second.evicting) return std::nullopt;
  replaced = forget(row.hash);
  return add_item(id, row);
}

void Catalog::reserve_rows(SegmentId id, std::size_t rows) {
  segments_.at(id.value).rows.reserve(rows);
}

void Catalog::recover_row(SegmentId id, const std::optional<IndexRow>& row, bool suspect) {
  Segment& segment = segments_.at(id.value);
  CHECK(segment.rows.size() < kMaxRows);
  const bool after_dead = !segment.rows.empty() && state_of(segment.rows.back()) == State::kDead;
  // Items follow one another; a gap is where a dead row's item was.
  if (row && row->offset > segment.end && after_dead) {
    segment.end = row->offset;
    set_end(segment.rows.back(), segment.end);
  }
  if (!row || row->offset != segment.end) {
    segment.rows.push_back(make_row({}, 0, segment.end, State::kDead));
    return;
  }
  segment.end += row->length;
  const RowRef ref{id.value, static_cast<std::uint32_t>(segment.rows.size())};
  segment.rows.push_back(
      make_row(row->hash, row->checksum, segment.end, suspect ? State::kSuspect : State::kDead));
  if (suspect) {
    if (segment.suspect++ == 0) to_scrub_.push_back(id);
    add_suspects(1, static_cast<std::int64_t>(row->length));
    return;
  }
  static_cast<void>(forget(row->hash));
  table_.insert(row->hash, ref, hasher());
  set_state(segment.rows.back(), State::kLive);
  ++segment.live;
}

void Catalog::add_suspects(std::int64_t rows, std::int64_t bytes) {
  suspect_rows_ += static_cast<std::uint64_t>(rows);
  suspect_bytes_ += static_cast<std::uint64_t>(bytes);
}

std::optional<StoredAt> Catalog::find(const Sha256& hash) const {
  const auto ref = table_.find(hash, hasher());
  if (!ref) return std::nullopt;
  return place_of(SegmentId(ref->segment), segments_.find(ref->segment)->second, ref->row);
}

// Takes a row out of the table and of the counts, whatever it is.
void Catalog::kill(RowRef ref) {
  Segment& segment = segments_.at(ref.segment);
  Row& row = segment.rows[ref.row];
  const State state = state_of(row);
  if (state == State::kLive) {
    CHECK(table_.erase(Sha256{row.hash}, ref, hasher()));
    --segment.live;
  } else if (state == State::kSuspect) {
    const auto length = place_of(SegmentId(ref.segment), segment, ref.row).length.value;
    --segment.suspect;
    add_suspects(-1, -static_cast<std::int64_t>(length));
  }
  set_state(row, State::kDead);
}

std::optional<RowRef> Catalog::forget(const Sha256& hash) {
  const auto ref = table_.find(hash, hasher());
  if (ref) kill(*ref);
  return ref;
}

std::optional<RowRef> Catalog::live_row(const StoredAt& at) const {
  const auto it = segments_.find(at.segment.value);
  if (it == segments_.end()) return std::nullopt;
  const auto& rows = it->second.rows;
  // Ends rise; several rows end at the same place only where items are empty.
  auto row = std::ranges::lower_bound(rows, at.offset + at.length.value, {}, end_of);
  for (; row != rows.end() && end_of(*row) == at.offset + at.length.value; ++row) {
    const auto number = static_cast<std::uint32_t>(row - rows.begin());
    if (state_of(*row) == State::kLive && place_of(at.segment, it->second, number) == at) {
      return RowRef{at.segment.value, number};
    }
  }
  return std::nullopt;
}

std::optional<RowRef> Catalog::forget_at(const StoredAt& at) {
  const auto ref = live_row(at);
  if (ref) kill(*ref);
  return ref;
}

std::vector<Catalog::Suspect> Catalog::take_suspects(Bytes budget, bool at_least_one) {
  std::vector<Suspect> taken;
  while (taken.empty() && !to_scrub_.empty()) {
    const SegmentId id = to_scrub_.front();
    const auto it = segments_.find(id.value);
    if (it == segments_.end() || it->second.scrubbed >= it->second.rows.size()) {
      to_scrub_.pop_front();
      continue;
    }
    Segment& segment = it->second;
    Bytes bytes;
    for (; segment.scrubbed < segment.rows.size(); ++segment.scrubbed) {
      const Row& row = segment.rows[segment.scrubbed];
      if (state_of(row) != State::kSuspect) continue;
      const StoredAt at = place_of(id, segment, segment.scrubbed);
      if ((!at_least_one || !taken.empty()) && bytes + at.length > budget) return taken;
      bytes += at.length;
      taken.push_back({{id.value, segment.scrubbed}, Sha256{row.hash}, at});
    }
  }
  return taken;
}

void Catalog::judge(const Suspect& suspect, bool good) {
  const auto it = segments_.find(suspect.ref.segment);
  if (it == segments_.end() || suspect.ref.row >= it->second.rows.size()) return;  // evicted
  Row& row = it->second.rows[suspect.ref.row];
  if (state_of(row) != State::kSuspect) return;
  kill(suspect.ref);
  if (!good) {
    count_quarantined();
    return;
  }
  if (find(suspect.hash)) return;
  table_.insert(suspect.hash, suspect.ref, hasher());
  set_state(row, State::kLive);
  ++it->second.live;
}

std::vector<SegmentInfo> Catalog::segments() const {
  std::vector<SegmentInfo> all;
  all.reserve(segments_.size());
  for (const auto& [id, s] : segments_) {
    if (s.evicting || s.unusable) continue;
    all.push_back({SegmentId(id), s.lane, Bytes(s.end), s.allocated, s.live + s.suspect, s.open});
  }
  std::ranges::sort(all, {}, &SegmentInfo::id);
  return all;
}

std::vector<Sha256> Catalog::items_of(SegmentId id) const {
  std::vector<Sha256> items;
  const auto it = segments_.find(id.value);
  if (it == segments_.end()) return items;
  items.reserve(it->second.live);
  for (const Row& row : it->second.rows) {
    if (state_of(row) == State::kLive) items.push_back(Sha256{row.hash});
  }
  return items;
}

StoreStats Catalog::stats() const {
  StoreStats stats;
  stats.allocated = allocated();
  stats.limit = limit_;
  stats.items = table_.size();
  stats.leaving = leaving_;
  stats.segments = segments_.size() - evicting_ - unusable_;
  stats.unusable = unusable_;
  stats.quarantined = quarantined_;
  stats.suspect = Bytes(suspect_bytes_);
  return stats;
}

}  // namespace quiver::cache
