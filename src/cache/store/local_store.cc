#include "cache/store/local_store.h"

#include <fcntl.h>

#include <array>

#include "base/text.h"
#include "cache/store/recovery.h"

namespace quiver::cache {
namespace {

// A folder grows by a block or two, now and then, when a segment begins.
constexpr std::uint64_t kNewSegmentUnits = 4;
// How long an append waits for room that evictions on their way will make.
constexpr Duration kWaitForRoom = std::chrono::seconds(1);
constexpr int kTries = 10;

}  // namespace

LocalStore::LocalStore(const StoreOptions& options, std::unique_ptr<Directory> directory,
                       io::Files& files, Clock& clock, LogSink& log)
    : files_(files),
      log_(log),
      directory_(std::move(directory)),
      boot_(*directory_, files),
      floor_(options.directory, options.disk_floor, files, clock),
      catalog_(options.disk_limit),
      evictor_([this](const Evictor::Job& job) { return free_disk_of(job); }),
      syncer_([this](bool all, std::stop_token stop) { return sync_some(all, std::move(stop)); }) {}

Status LocalStore::recover(const std::string& boot_id) {
  const auto numbers = TRY(segment_numbers(*directory_, files_));
  auto begun = boot_.begin(boot_id, numbers.empty() ? 0 : numbers.back().value + 1);
  if (!begun) {
    return explain_failure(directory_->path(), true, TRY(file_system_of(directory_->path())),
                           std::move(begun).error());
  }
  Catalog catalog(stats().limit);
  const Recovered found =
      recover_segments(numbers, *directory_, files_, boot_.suspect_below(), catalog);
  if (!boot_.was_clean()) {
    for (const SegmentInfo& segment : catalog.segments()) catalog.mark_dirty(segment.id);
  }
  catalog_.with([&](Catalog& c) { c = std::move(catalog); });
  if (Status ok = measure_overhead(true); !ok) return std::move(ok).error();
  const StoreStats now = stats();
  if (found.segments + found.dropped_segments > 0) {
    quiver::log(log_, LogLevel::kInfo,
                "store: recovered {} items in {} segments, {} ({} to be re-verified); dropped {} "
                "segments and {} rows that were not whole",
                found.items, found.segments, format_bytes(now.allocated), format_bytes(now.suspect),
                found.dropped_segments, found.dropped_rows);
  }
  if (found.unusable_segments > 0) {
    quiver::log(log_, LogLevel::kWarning,
                "store: {} segments in {} cannot be read now and are left alone until the next "
                "start: {}; they count against disk_limit",
                found.unusable_segments, directory_->path(), found.why_unusable);
  }
  return {};
}

// `foreign`: also what strangers have among the segments, which takes a look at all of them.
Status LocalStore::measure_overhead(bool foreign) {
  const Bytes beside = TRY(directory_->overhead_beside_segments());
  const Bytes folder = TRY(directory_->folder());
  const Bytes among = foreign ? TRY(directory_->foreign()) : Bytes();
  const Bytes fixed = overhead_.with([&](Overhead& o) {
    o.beside = beside;
    if (foreign) o.foreign = among;
    return o.beside + o.foreign;
  });
  catalog_.with([&](Catalog& c) { c.set_overhead(fixed + folder); });
  return {};
}

std::optional<StoredAt> LocalStore::find(const Sha256& hash) const {
  return catalog_.with([&](const Catalog& c) { return c.find(hash); });
}

std::optional<Lane> LocalStore::lane_of(SegmentId id) const {
  return catalog_.with([&](const Catalog& c) { return c.lane_of(id); });
}

std::vector<SegmentInfo> LocalStore::segments() const {
  return catalog_.with([](const Catalog& c) { return c.segments(); });
}

std::vector<Sha256> LocalStore::items_of(SegmentId id) const {
  return catalog_.with([&](const Catalog& c) { return c.items_of(id); });
}

StoreStats LocalStore::stats() const {
  return catalog_.with([](const Catalog& c) { return c.stats(); });
}

void LocalStore::set_disk_limit(Bytes limit) {
  catalog_.with([&](Catalog& c) { c.set_limit(limit); });
}

Result<StoredAt> LocalStore::append(const Lane& lane, const VerifiedItem& item,
                                    Bytes segment_limit) {
  return write(lane, item, segment_limit, false);
}

Result<StoredAt> LocalStore::move(const Lane& lane, const VerifiedItem& item, Bytes segment_limit) {
  return write(lane, item, segment_limit, true);
}

Result<StoredAt> LocalStore::write(const Lane& lane, const VerifiedItem& item, Bytes segment_limit,
                                   bool replaces) {
  if (lane.group.size() > kMaxGroupBytes || item.bytes().size() >= kSegmentBytes) {
    return error(Code::kInvalid, "an item of {} bytes in a group of {} letters is too much",
                 item.bytes().size(), lane.group.size());
  }
  if (const auto at = find(item.hash()); at && !replaces) return *at;
  const IndexRow row{item.hash(), 0, item.bytes().size(), checksum32(item.bytes())};
  for (int tries = 1;; ++tries) {
    const std::uint64_t freed = evictor_.freed();
    Place at = write_once(lane, {row, item.bytes(), replaces}, segment_limit);
    if (at && *at) return **at;
    if (tries == kTries && at) {
      return error(Code::kUnavailable, "the place of an item was evicted again and again");
    }
    if (!at && !may_have_room(at.error(), freed, tries)) return std::move(at).error();
  }
}

// Whether to try again: `freed` is what evictions had freed before the last try. Waits for more.
bool LocalStore::may_have_room(const Error& refusal, std::uint64_t freed, int tries) {
  return refusal.code == Code::kNoSpace && tries < kTries &&
         evictor_.wait_for_more(freed, kWaitForRoom);
}

LocalStore::Place LocalStore::write_once(const Lane& lane, Incoming item, Bytes segment_limit) {
  auto held = lanes_.hold(lane);
  // Who wrote it while we waited for the lane has the place.
  const auto there = item.replaces ? std::nullopt : find(item.row.hash);
  if (!there && held.writer() &&
      !catalog_.with([&](const Catalog& c) { return c.is_open(held.writer()->id()); })) {
    lanes_.retire(lane, held);
    return std::optional<StoredAt>();
  }
  auto at = there ? Place(there) : append_held(lane, held, item, segment_limit);
  if (!held.writer() && !held.slot->retired) lanes_.retire(lane, held);
  return at;
}

LocalStore::Place LocalStore::append_held(const Lane& lane, OpenLanes::Held& held, Incoming item,
                                          Bytes segment_limit) {
  IndexRow& row = item.row;
  auto& writer = held.writer();
  const std::uint64_t limit = std::min(segment_limit.value, kSegmentBytes);
  if (writer &&
      (writer->rows() == kMaxRows || (writer->end() > 0 && writer->end() + row.length > limit) ||
       writer->end() + row.length >= kSegmentBytes)) {
    seal_held(lane, held);
    held = lanes_.hold(lane);  // a slot that was sealed is out of the map
    return append_held(lane, held, item, segment_limit);
  }
  const Bytes growth =
      writer ? writer->growth(row.length, directory_->unit()) : growth_of_new(Bytes(row.length));
  if (Status ok = reserve(growth); !ok) return std::move(ok).error();
  Status written = ready_writer(lane, held);
  if (!written && !held.writer()) {
    catalog_.with([&](Catalog& c) { c.unreserve(growth); });
    return std::move(written).error();
  }
  row.offset = held.writer()->end();
  if (written) written = held.writer()->append(row, item.bytes);
  return settle(lane, held, item, growth, std::move(written));
}

Status LocalStore::reserve(Bytes growth) {
  TRY(floor_.take(growth));
  return catalog_.with([&](Catalog& c) { return c.reserve(growth); });
}

Status LocalStore::reserve_patiently(Bytes growth) {
  for (int tries = 1;; ++tries) {
    const std::uint64_t freed = evictor_.freed();
    Status reserved = reserve(growth);
    if (reserved || !may_have_room(reserved.error(), freed, tries)) return reserved;
  }
}

// Of a segment with one item.
Bytes LocalStore::growth_of_new(Bytes length) const {
  const Bytes unit = directory_->unit();
  return in_units(length, unit) + unit + unit * kNewSegmentUnits;
}

Result<SegmentId> LocalStore::next_number() {
  return boot_.next_number(
      [&](SegmentId id) { return catalog_.with([&](const Catalog& c) { return c.has(id); }); });
}

// A writer with open descriptors, begun if there is none.
Status LocalStore::ready_writer(const Lane& lane, OpenLanes::Held& held) {
  auto& writer = held.writer();
  if (writer && !writer->parked()) return {};
  lanes_.make_room(held);
  if (writer) return writer->unpark();
  const SegmentId id = TRY(next_number());
  writer = TRY(SegmentWriter::create(*directory_, files_, id, lane));
  const auto folder = directory_->folder();
  const Bytes fixed = overhead_.with([](const Overhead& o) { return o.beside + o.foreign; });
  catalog_.with([&](Catalog& c) {
    c.add_segment(id, lane, true);
    if (folder) c.set_overhead(fixed + *folder);
  });
  return {};
}

// Books what was written, or what a failure left of it.
LocalStore::Place LocalStore::settle(const Lane& lane, OpenLanes::Held& held, const Incoming& item,
                                     Bytes reserved, Status written) {
  SegmentWriter& writer = *held.writer();
  const SegmentId id = writer.id();
  const auto allocated =
      writer.parked() ? Result<Bytes>(error(Code::kIo, "not open")) : writer.allocated();
  std::optional<RowRef> replaced;
  auto at = catalog_.with([&](Catalog& c) -> std::optional<StoredAt> {
    c.unreserve(reserved);
    c.set_allocated(id, allocated ? *allocated : c.allocated_of(id) + reserved);
    if (!written) return std::nullopt;
    return item.replaces ? c.move_item(id, item.row, replaced) : c.add_item(id, item.row);
  });
  if (replaced) erase_row(*replaced);
  if (at) return at;
  if (written) {  // evicted meanwhile, or the directory was removed
    lanes_.retire(lane, held);
    return std::optional<StoredAt>();
  }
  const bool begun_in_vain = writer.rows() == 0;
  if (begun_in_vain || writer.broken()) seal_held(lane, held);
  if (begun_in_vain) evict(id);
  return std::move(written).error();
}

// After closing, for some file systems allocate ahead of a file that is being written.
void LocalStore::seal_held(const Lane& lane, OpenLanes::Held& held) {
  const auto id = held.writer() ? std::optional(held.writer()->id()) : std::nullopt;
  lanes_.retire(lane, held);
  if (id) settle_sealed(*id);
}

void LocalStore::settle_sealed(SegmentId id) {
  const auto data = files_.stat(directory_->data_path(id));
  const auto index = files_.stat(directory_->index_path(id));
  catalog_.with([&](Catalog& c) {
    if (data && index) {
      const Bytes unit = directory_->unit();
      c.set_allocated(id, occupied(*data, unit) + occupied(*index, unit));
    }
    c.set_sealed(id);
  });
}

Bytes LocalStore::evict(SegmentId id) {
  const auto lane = lane_of(id);
  if (!lane) return Bytes();
  const auto leaving = catalog_.with([&](Catalog& c) { return c.begin_evict(id); });
  if (!leaving) return Bytes();
  evictor_.push({id, *lane});
  return *leaving;
}

bool LocalStore::wait_until_freed(Duration patience) {
  return evictor_.wait_until_done(patience);
}

// Who was appending to it when it was evicted has seen so before we have the lane.
void LocalStore::let_go_of(const Lane& lane, SegmentId id) {
  if (auto held = lanes_.hold_if_open(lane)) {
    if (!held->writer() || held->writer()->id() == id) lanes_.retire(lane, *held);
  }
}

bool LocalStore::free_disk_of(const Evictor::Job& job) {
  let_go_of(job.lane, job.id);
  const Status freed = truncate_and_unlink(job.id);
  floor_.look_again();
  if (freed) {
    catalog_.with([&](Catalog& c) { c.remove_segment(job.id); });
    return true;
  }
  if (catalog_.with([&](Catalog& c) { return c.set_leaving(job.id, false); })) {
    quiver::log(log_, LogLevel::kWarning,
                "store: evicting segment {}, and again until it works: {}", job.id.value,
                freed.error().message);
  }
  return false;
}

// Order: not found any more; truncated, which frees the blocks whoever holds the file open; counted
// as free; unlinked, index first. Killed between any two of them, a start finds an index that
// speaks of more than the data has, or a file alone, and drops it.
Status LocalStore::truncate_and_unlink(SegmentId id) {
  const auto data = directory_->open_data(id, O_WRONLY);
  if (!data && data.error().code != Code::kNotFound) return data.error();
  if (data) {
    TRY(files_.truncate(data->get(), 0));
    const auto index = files_.stat(directory_->index_path(id));
    const Bytes rest = index ? occupied(*index, directory_->unit()) : Bytes();
    catalog_.with([&](Catalog& c) { c.set_allocated(id, std::min(rest, c.allocated_of(id))); });
  }
  TRY(files_.remove(directory_->index_path(id)));
  return files_.remove(directory_->data_path(id));
}

Result<bool> LocalStore::recreate_if_gone() {
  if (!TRY(directory_->gone())) return false;
  // Writers find that their segments are no more when they write again.
  const auto lost = catalog_.with([](Catalog& c) { return c.clear(); });
  if (Status ok = directory_->recreate(); !ok) return std::move(ok).error();
  if (Status ok = boot_.rewrite(); !ok) return std::move(ok).error();
  if (Status ok = measure_overhead(true); !ok) return std::move(ok).error();
  floor_.look_again();
  quiver::log(log_, LogLevel::kWarning,
              "store: the cache directory {} was removed below the running daemon; made anew, "
              "{} segments lost",
              directory_->path(), lost);
  return true;
}

}  // namespace quiver::cache
