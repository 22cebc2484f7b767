// The half of LocalStore that reads: items, scrubbing, quarantine; and the clean end.
#include <fcntl.h>

#include <array>

#include "cache/store/local_store.h"

namespace quiver::cache {
namespace {

constexpr std::size_t kScrubBuffer = 1 << 20;
constexpr Duration kClose = std::chrono::seconds(3);  // what a close may take

}  // namespace

Result<io::Fd> LocalStore::open_segment(SegmentId id) {
  return directory_->open_data(id, O_RDONLY);
}

Status LocalStore::read(const StoredAt& at, MutableByteSpan out) {
  if (out.size() != at.length.value) {
    return error(Code::kInvalid, "a buffer of {} bytes for an item of {}", out.size(),
                 at.length.value);
  }
  const auto held = [&] { return catalog_.with([&](const Catalog& c) { return c.holds(at); }); };
  const Error gone = error(Code::kNotFound, "the item has left segment {}", at.segment.value);
  if (!held()) return gone;
  const auto file = open_segment(at.segment);
  if (!file) {
    const bool lost = file.error().code == Code::kNotFound || file.error().code == Code::kDenied;
    if (!held()) return gone;
    if (lost) quarantine_at(at, file.error().message);
    return lost ? error(Code::kCorrupt, "segment {} cannot be read: {}", at.segment.value,
                        file.error().message)
                : file.error();
  }
  const auto n = files_.pread(file->get(), out, at.offset);
  if (n && *n == out.size() && checksum32(out) == at.checksum) return {};
  if (!held()) return gone;  // it was evicted while it was read: no fault of the disk
  quarantine_at(at, !n ? n.error().message : *n < out.size() ? "it is short" : "wrong checksum");
  return error(Code::kCorrupt, "an item in segment {} is damaged", at.segment.value);
}

void LocalStore::forget(const Sha256& hash) {
  if (const auto ref = catalog_.with([&](Catalog& c) { return c.forget(hash); })) erase_row(*ref);
}

void LocalStore::quarantine(const Sha256& hash) {
  const auto ref = catalog_.with([&](Catalog& c) {
    const auto found = c.forget(hash);
    if (found) c.count_quarantined();
    return found;
  });
  if (ref) erase_row(*ref);
}

void LocalStore::quarantine_at(const StoredAt& at, std::string_view why) {
  const auto ref = catalog_.with([&](Catalog& c) {
    const auto found = c.forget_at(at);
    if (found) c.count_quarantined();
    return found;
  });
  if (!ref) return;
  quiver::log(log_, LogLevel::kWarning, "store: item at {} of segment {} quarantined: {}",
              at.offset, at.segment.value, why);
  erase_row(*ref);
}

// So that it does not come back at the next start. Should this fail, the checksum or the scrub
// catches a bad item again, and an unwanted one is merely there.
void LocalStore::erase_row(RowRef ref) {
  const auto index = directory_->open_index(SegmentId(ref.segment), O_WRONLY);
  if (!index) return;
  const RowBytes zero{};
  static_cast<void>(files_.pwrite(index->get(), zero, (std::uint64_t{ref.row} + 1) * kRowBytes));
  catalog_.with([&](Catalog& c) { c.mark_dirty(SegmentId(ref.segment)); });
}

Status LocalStore::verify(const StoredAt& at, const Sha256& hash) {
  const io::Fd file = TRY(open_segment(at.segment));
  std::vector<std::byte> buffer(std::min<std::uint64_t>(at.length.value, kScrubBuffer));
  Sha256Stream sum;
  for (std::uint64_t done = 0; done < at.length.value;) {
    const auto part = MutableByteSpan(buffer).first(
        std::min<std::uint64_t>(buffer.size(), at.length.value - done));
    if (TRY(files_.pread(file.get(), part, at.offset + done)) < part.size()) {
      return error(Code::kShort, "it is short");
    }
    sum.update(part);
    done += part.size();
  }
  if (sum.finish() != hash) return error(Code::kCorrupt, "wrong hash");
  return {};
}

Result<bool> LocalStore::scrub(Bytes budget) {
  for (Bytes done; done < budget || done == Bytes();) {
    const bool first = done == Bytes();
    const auto batch = catalog_.with(
        [&](Catalog& c) { return c.take_suspects(first ? budget : budget - done, first); });
    if (batch.empty()) break;
    for (const Catalog::Suspect& suspect : batch) {
      const Status good = verify(suspect.at, suspect.hash);
      catalog_.with([&](Catalog& c) { c.judge(suspect, good.has_value()); });
      done += std::max(suspect.at.length, Bytes(1));
      if (good) continue;
      quiver::log(log_, LogLevel::kWarning, "store: item at {} of segment {} quarantined: {}",
                  suspect.at.offset, suspect.at.segment.value, good.error().message);
      erase_row(suspect.ref);
    }
    const SegmentId id = batch.front().at.segment;
    if (catalog_.with([&](const Catalog& c) { return c.is_empty(id); })) {
      evict(id);  // none of it was ever published
    }
  }
  if (catalog_.with([](const Catalog& c) { return c.any_suspects(); })) return false;
  if (Status ok = boot_.nothing_suspect(); !ok) return std::move(ok).error();
  return true;
}

// Of what is synced on the way nothing is lost: what was taken and failed is dirty again.
Status LocalStore::sync_some(bool all, std::stop_token stop) {
  if (all) {
    close_stale_writers();
    static_cast<void>(measure_overhead(false));  // else as it was: logs grow slowly
  }
  Status result;
  for (const SegmentId id : catalog_.with([&](Catalog& c) { return c.take_dirty(all); })) {
    Status synced =
        stop.stop_requested() ? Status(error(Code::kCancelled, "the store is closing")) : sync(id);
    if (synced) continue;
    catalog_.with([&](Catalog& c) { c.mark_dirty(id); });
    if (result) result = std::move(synced);
  }
  return result;
}

Status LocalStore::sync(SegmentId id) {
  for (const auto& file :
       {directory_->open_data(id, O_RDONLY), directory_->open_index(id, O_RDONLY)}) {
    if (!file && file.error().code == Code::kNotFound) continue;  // a miss at the next start
    if (!file) return file.error();
    TRY(files_.sync(file->get()));
  }
  return {};
}

// Of a lane that nobody writes to any more when the directory was removed: its files hold disk.
void LocalStore::close_stale_writers() {
  for (const Lane& lane : lanes_.lanes()) {
    auto held = lanes_.hold_if_open(lane);
    if (!held) continue;
    const bool stale = !held->writer() || !catalog_.with([&](const Catalog& c) {
      return c.is_open(held->writer()->id());
    });
    if (stale) lanes_.retire(lane, *held);
  }
}

// The mark says that what the indexes tell is on the disk itself, so all of it goes there first.
void LocalStore::close_cleanly() {
  for (const Lane& lane : lanes_.lanes()) {
    if (auto held = lanes_.hold_if_open(lane)) seal_held(lane, *held);
  }
  const auto closed = [&]() -> Status {
    if (!evictor_.wait_until_done(kClose / 2)) {
      return error(Code::kTimeout, "the disk takes too long over what was evicted");
    }
    TRY(syncer_.finish(kClose / 2));
    return boot_.mark_clean();
  }();
  if (!closed) {
    quiver::log(log_, LogLevel::kWarning,
                "store: no clean mark, items will be re-verified after the next boot: {}",
                closed.error().message);
  }
}

}  // namespace quiver::cache
