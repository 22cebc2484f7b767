// LocalStore: the Store over a Directory. Shells around Catalog (what is where) and SegmentWriter
// (bytes); docs/formats/segments.md has the files.
//
// Locks, outermost first: a lane's (held across writes to its files), the boot file's (rare), the
// catalog's (never across I/O). Bytes are reserved in the budget before they are written and
// settled by what the file system says afterwards, so the budget holds at every moment. Only those
// who write take a lane's lock: the thread that decides what is evicted waits for no disk.
#pragma once

#include "base/guarded.h"
#include "cache/store/catalog.h"
#include "cache/store/directory.h"
#include "cache/store/disk_floor.h"
#include "cache/store/evictor.h"
#include "cache/store/open_lanes.h"
#include "cache/store/store.h"
#include "cache/store/syncer.h"

namespace quiver::cache {

class LocalStore final : public Store {
 public:
  LocalStore(const StoreOptions& options, std::unique_ptr<Directory> directory, io::Files& files,
             Clock& clock, LogSink& log);
  Status recover(const std::string& boot_id);

  Result<StoredAt> append(const Lane& lane, const VerifiedItem& item, Bytes segment_limit) override;
  Result<StoredAt> move(const Lane& lane, const VerifiedItem& item, Bytes segment_limit) override;
  Result<std::unique_ptr<IncomingItem>> begin_item(Bytes length) override;
  std::optional<StoredAt> find(const Sha256& hash) const override;
  std::optional<Lane> lane_of(SegmentId id) const override;
  Result<io::Fd> open_segment(SegmentId id) override;
  Status read(const StoredAt& at, MutableByteSpan out) override;
  Bytes evict(SegmentId id) override;
  bool wait_until_freed(Duration patience) override;
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
  class Pieces;
  // What is written of an item, and what becomes of one with this hash that is there.
  struct Incoming {
    IndexRow row;
    ByteSpan bytes;
    bool replaces = false;
  };
  Result<StoredAt> write(const Lane& lane, const VerifiedItem& item, Bytes segment_limit,
                         bool replaces);
  bool may_have_room(const Error& refusal, std::uint64_t freed, int tries);
  // Nullopt: its segment was evicted meanwhile, write it again.
  using Place = Result<std::optional<StoredAt>>;
  Status reserve(Bytes growth);
  Status reserve_patiently(Bytes growth);
  Bytes growth_of_new(Bytes length) const;
  Result<SegmentId> next_number();
  Place write_once(const Lane& lane, Incoming item, Bytes segment_limit);
  Place append_held(const Lane& lane, OpenLanes::Held& held, Incoming item, Bytes segment_limit);
  Status ready_writer(const Lane& lane, OpenLanes::Held& held);
  Place settle(const Lane& lane, OpenLanes::Held& held, const Incoming& item, Bytes reserved,
               Status written);
  void seal_held(const Lane& lane, OpenLanes::Held& held);
  void settle_sealed(SegmentId id);
  bool free_disk_of(const Evictor::Job& job);
  Status truncate_and_unlink(SegmentId id);
  void let_go_of(const Lane& lane, SegmentId id);
  Status measure_overhead(bool foreign);
  void close_stale_writers();
  void erase_row(RowRef ref);
  void quarantine_at(const StoredAt& at, std::string_view why);
  Status verify(const StoredAt& at, const Sha256& hash);
  Status sync_some(bool all, std::stop_token stop);
  Status sync(SegmentId id);

  io::Files& files_;
  LogSink& log_;
  const std::unique_ptr<Directory> directory_;
  BootFile boot_;
  DiskFloor floor_;
  OpenLanes lanes_;
  Guarded<Catalog> catalog_;
  // That of the directory without its segments and the folder itself.
  struct Overhead {
    Bytes beside, foreign;  // the folder of segments, in it
  };
  Guarded<Overhead> overhead_;
  // Last: their threads use all of the above.
  Evictor evictor_;
  Syncer syncer_;
};

}  // namespace quiver::cache
