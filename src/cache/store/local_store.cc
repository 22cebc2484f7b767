#include "cache/store/local_store.h"

#include <fcntl.h>

#include <array>

#include "base/text.h"
#include "cache/store/recovery.h"

namespace quiver::cache {
namespace {

// A folder grows by a block or two, now and then, when a segment begins.
constexpr std::uint64_t kNewSegmentUnits = 4;

}  // namespace

LocalStore::LocalStore(const StoreOptions& options, std::unique_ptr<Directory> directory,
                       io::Files& files, Clock& clock, LogSink& log)
    : files_(files),
      log_(log),
      directory_(std::move(directory)),
      boot_(*directory_, files),
      floor_(options.directory, options.disk_floor, files, clock),
      catalog_(options.disk_limit) {}

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
  catalog_.with([&](Catalog& c) { c = std::move(catalog); });
  if (Status ok = measure_overhead(); !ok) return std::move(ok).error();
  const StoreStats now = stats();
  if (found.segments + found.dropped_segments > 0) {
    quiver::log(log_, LogLevel::kInfo,
                "store: recovered {} items in {} segments, {} ({} to be re-verified); dropped {} "
                "segments and {} rows that were not whole",
                found.items, found.segments, format_bytes(now.allocated), format_bytes(now.suspect),
                found.dropped_segments, found.dropped_rows);
  }
  return {};
}

Status LocalStore::measure_overhead() {
  const Bytes fixed = TRY(directory_->overhead());
  fixed_overhead_.with([&](Bytes& b) { b = fixed; });
  const Bytes folder = TRY(directory_->folder());
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
  auto held = lanes_.hold(lane);
  // Who wrote it while we waited for the lane has the place.
  const auto there = replaces ? std::nullopt : find(item.hash());
  auto at = there ? Result<StoredAt>(*there)
                  : append_held(lane, held, {row, item.bytes(), replaces}, segment_limit);
  if (!held.writer() && !held.slot->retired) lanes_.retire(lane, held);
  return at;
}

Result<StoredAt> LocalStore::append_held(const Lane& lane, OpenLanes::Held& held, Incoming item,
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
  const Bytes unit = directory_->unit();
  const Bytes growth = writer ? writer->growth(row.length, unit)
                              : in_units(Bytes(row.length), unit) + unit + unit * kNewSegmentUnits;
  if (Status ok = floor_.take(growth); !ok) return std::move(ok).error();
  if (Status ok = catalog_.with([&](Catalog& c) { return c.reserve(growth); }); !ok)
    return std::move(ok).error();
  Status written = ready_writer(lane, held);
  if (!written && !held.writer()) {
    catalog_.with([&](Catalog& c) { c.unreserve(growth); });
    return std::move(written).error();
  }
  row.offset = held.writer()->end();
  if (written) written = held.writer()->append(row, item.bytes);
  return settle(lane, held, item, growth, std::move(written));
}

// A writer with open descriptors, begun if there is none.
Status LocalStore::ready_writer(const Lane& lane, OpenLanes::Held& held) {
  auto& writer = held.writer();
  if (writer && !writer->parked()) return {};
  lanes_.make_room(held);
  if (writer) return writer->unpark();
  const auto taken = [&](SegmentId id) {
    return catalog_.with([&](const Catalog& c) { return c.has(id); });
  };
  const SegmentId id = TRY(boot_.next_number(taken));
  writer = TRY(SegmentWriter::create(*directory_, files_, id, lane));
  const auto folder = directory_->folder();
  const Bytes fixed = fixed_overhead_.with([](Bytes b) { return b; });
  catalog_.with([&](Catalog& c) {
    c.add_segment(id, lane, true);
    if (folder) c.set_overhead(fixed + *folder);
  });
  return {};
}

// Books what was written, or what a failure left of it.
Result<StoredAt> LocalStore::settle(const Lane& lane, OpenLanes::Held& held, const Incoming& item,
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
  if (at) return *at;
  const bool begun_in_vain = writer.rows() == 0;
  if (!written || !catalog_.with([&](const Catalog& c) { return c.has(id); })) {
    if (begun_in_vain || writer.broken() || written) seal_held(lane, held);
    if (begun_in_vain) {
      // Should this fail, too, the segment stays in the books, empty, to be evicted.
      static_cast<void>(release(id));
    }
  }
  if (!written) return std::move(written).error();
  return error(Code::kUnavailable, "the cache directory was removed while an item was written");
}

void LocalStore::seal(const Lane& lane) {
  if (auto held = lanes_.hold_if_open(lane)) seal_held(lane, *held);
}

// After closing, for some file systems allocate ahead of a file that is being written.
void LocalStore::seal_held(const Lane& lane, OpenLanes::Held& held) {
  const auto id = held.writer() ? std::optional(held.writer()->id()) : std::nullopt;
  lanes_.retire(lane, held);
  if (!id) return;
  const auto data = files_.stat(directory_->data_path(*id));
  const auto index = files_.stat(directory_->index_path(*id));
  catalog_.with([&](Catalog& c) {
    if (data && index) {
      const Bytes unit = directory_->unit();
      c.set_allocated(*id, occupied(*data, unit) + occupied(*index, unit));
    }
    c.set_sealed(*id);
  });
}

Result<Bytes> LocalStore::evict(SegmentId id) {
  const auto lane = lane_of(id);
  if (!lane) return Bytes();
  if (auto held = lanes_.hold_if_open(*lane)) {
    // Nobody appends to it from here on.
    if (!held->writer() || held->writer()->id() == id) lanes_.retire(*lane, *held);
  }
  return release(id);
}

// Order: not found any more; truncated, which frees the blocks whoever holds the file open; counted
// as free; unlinked, index first. Killed between any two of them, a start finds an index that
// speaks of more than the data has, or a file alone, and drops it.
Result<Bytes> LocalStore::release(SegmentId id) {
  if (!catalog_.with([&](Catalog& c) { return c.begin_evict(id); })) return Bytes();
  const Bytes before = catalog_.with([&](const Catalog& c) { return c.allocated_of(id); });
  const auto free_disk = [&]() -> Status {
    const auto data = files_.open(directory_->data_path(id), O_WRONLY, 0);
    if (!data && data.error().code != Code::kNotFound) return data.error();
    if (data) {
      if (Status ok = files_.truncate(data->get(), 0); !ok) return std::move(ok).error();
      const auto index = files_.stat(directory_->index_path(id));
      const Bytes rest = index ? occupied(*index, directory_->unit()) : Bytes();
      catalog_.with([&](Catalog& c) { c.set_allocated(id, std::min(rest, before)); });
    }
    if (Status ok = files_.remove(directory_->index_path(id)); !ok) return std::move(ok).error();
    return files_.remove(directory_->data_path(id));
  };
  auto freed = free_disk();
  floor_.look_again();
  if (!freed) {
    catalog_.with([&](Catalog& c) { c.abandon_evict(id); });
    return std::move(freed).error().context("evicting a segment");
  }
  catalog_.with([&](Catalog& c) { c.remove_segment(id); });
  return before;
}

Result<bool> LocalStore::recreate_if_gone() {
  if (!TRY(directory_->gone())) return false;
  for (const Lane& lane : lanes_.lanes()) {
    if (auto held = lanes_.hold_if_open(lane)) lanes_.retire(lane, *held);
  }
  const auto lost = catalog_.with([](Catalog& c) {
    const auto all = c.segments();
    for (const SegmentInfo& s : all) {
      c.begin_evict(s.id);
      c.remove_segment(s.id);
    }
    return all.size();
  });
  if (Status ok = directory_->recreate(); !ok) return std::move(ok).error();
  if (Status ok = boot_.rewrite(); !ok) return std::move(ok).error();
  if (Status ok = measure_overhead(); !ok) return std::move(ok).error();
  floor_.look_again();
  quiver::log(log_, LogLevel::kWarning,
              "store: the cache directory {} was removed below the running daemon; made anew, "
              "{} segments lost",
              directory_->path(), lost);
  return true;
}

}  // namespace quiver::cache
