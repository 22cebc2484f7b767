// LocalStore: the Store over a Directory. Shells around Catalog (what is where) and SegmentWriter
// (bytes); docs/formats/segments.md has the files.
//
// Locks, outermost first: a lane's (held across writes to its files), the boot file's (rare), the
// catalog's (never across I/O). Bytes are reserved in the budget before they are written and
// settled by what the file system says afterwards, so the budget holds at every moment.
#pragma once

#include "base/guarded.h"
#include "cache/store/catalog.h"
#include "cache/store/directory.h"
#include "cache/store/disk_floor.h"
#include "cache/store/open_lanes.h"
#include "cache/store/store.h"

namespace quiver::cache {

class LocalStore final : public Store {
 public:
  LocalStore(const StoreOptions& options, std::unique_ptr<Directory> directory, io::Files& files,
             Clock& clock, LogSink& log);
  Status recover(const std::string& boot_id);

  Result<StoredAt> append(const Lane& lane, const VerifiedItem& item, Bytes segment_limit) override;
  Result<StoredAt> move(const Lane& lane, const VerifiedItem& item, Bytes segment_limit) override;
  std::optional<StoredAt> find(const Sha256& hash) const override;
  std::optional<Lane> lane_of(SegmentId id) const override;
  void seal(const Lane& lane) override;
  Result<io::Fd> open_segment(SegmentId id) override;
  Status read(const StoredAt& at, MutableByteSpan out) override;
  Result<Bytes> evict(SegmentId id) override;
  void forget(const Sha256& hash) override;
  void quarantine(const Sha256& hash) override;
  std::vector<SegmentInfo> segments() const override;
  std::vector<Sha256> items_of(SegmentId id) const override;
  StoreStats stats() const override;
  void set_disk_limit(Bytes limit) override;
  Result<bool> scrub(Bytes budget) override;
  Result<bool> recreate_if_gone() override;
  void close_cleanly() override;

 private:
  // What is written of an item, and what becomes of one with this hash that is there.
  struct Incoming {
    IndexRow row;
    ByteSpan bytes;
    bool replaces = false;
  };
  Result<StoredAt> write(const Lane& lane, const VerifiedItem& item, Bytes segment_limit,
                         bool replaces);
  Result<StoredAt> append_held(const Lane& lane, OpenLanes::Held& held, Incoming item,
                               Bytes segment_limit);
  Status ready_writer(const Lane& lane, OpenLanes::Held& held);
  Result<StoredAt> settle(const Lane& lane, OpenLanes::Held& held, const Incoming& item,
                          Bytes reserved, Status written);
  void seal_held(const Lane& lane, OpenLanes::Held& held);
  Result<Bytes> release(SegmentId id);
  Status measure_overhead();
  void erase_row(RowRef ref);
  void quarantine_at(const StoredAt& at, std::string_view why);
  Status verify(const StoredAt& at, const Sha256& hash);
  Status sync_all();

  io::Files& files_;
  LogSink& log_;
  const std::unique_ptr<Directory> directory_;
  BootFile boot_;
  DiskFloor floor_;
  OpenLanes lanes_;
  Guarded<Catalog> catalog_;
  Guarded<Bytes> fixed_overhead_;  // that of the directory, without the folder of segments
};

}  // namespace quiver::cache
