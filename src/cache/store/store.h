// Store: content on disk. Segment files of items, found by hash, within a budget of disk blocks.
//
// One directory, one process (the daemon). The directory carries a marker and nothing in it is
// touched without one. Segments are append-only, and whole or gone: a number is never used twice,
// no hole is ever punched. Beside each segment lies its index, one checksummed row an item, written
// after the item's bytes; recovery reads only indexes, so a restart costs 56 bytes an item, not the
// data. Every item was verified when it came (VerifiedItem) and carries a checksum for re-reads.
//
// To add a use of disk: give it a Lane, so that what is released together lies together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"
#include "base/units.h"
#include "io/file.h"

namespace quiver::cache {

// Bytes that have been compared with the hash they were asked for by, or hashed when nobody knew
// their hash. There is no other way into the store. Borrows the bytes.
class VerifiedItem {
 public:
  // kCorrupt when the bytes are not those of `expected`.
  static Result<VerifiedItem> verify(const Sha256& expected, ByteSpan bytes);
  static VerifiedItem of_unknown(ByteSpan bytes);
  const Sha256& hash() const { return hash_; }
  ByteSpan bytes() const { return bytes_; }

 private:
  VerifiedItem(const Sha256& hash, ByteSpan bytes) : hash_(hash), bytes_(bytes) {}
  Sha256 hash_;
  ByteSpan bytes_;
};

struct StoredAt {
  SegmentId segment;
  std::uint64_t offset = 0;
  Bytes length;
  std::uint32_t checksum = 0;  // checksum32 of the bytes
  bool operator==(const StoredAt&) const = default;
};

// What is written together and leaves together: a dataset's staged items, or one band (a part of
// the hash space) of what it pins. `group` is the dataset's public id, or "incoming" for what was
// inserted before its manifest is known. Items of a segment are all of one lane.
struct Lane {
  std::string group;
  bool pinned = false;
  std::uint8_t band = 0;  // of pinned: the first byte of its first hash
  auto operator<=>(const Lane&) const = default;
};

struct SegmentInfo {
  SegmentId id;
  Lane lane;
  Bytes data;       // item bytes in it
  Bytes allocated;  // disk blocks, index included
  std::uint32_t items = 0;
  bool open = false;  // still appended to
};

struct StoreOptions {
  std::string directory;
  Bytes disk_limit;          // P5: the sum of allocated blocks below the directory
  double disk_floor = 0.05;  // share of the disk that stays free for others
  std::string boot_id;       // of the machine; another than last time without a clean mark:
                             // items are re-verified before they are served
};

struct StoreStats {
  Bytes allocated, limit;
  std::uint64_t items = 0, segments = 0, quarantined = 0;
  std::uint64_t unusable = 0;  // segments that could not be read at the start, and were left alone
  Bytes suspect;               // still to be re-verified
  Bytes leaving;               // of allocated: what evictions on their way will free
  Bytes staying() const { return allocated - leaving; }
};

// An item that comes in pieces, because it is too long for memory: in a segment of its own, that
// nobody finds before all of it is there and right. One thread at a time. Destroyed before it is
// finished, or after anything failed: nothing of it stays. Must not outlive its store.
class IncomingItem {
 public:
  virtual ~IncomingItem() = default;
  virtual Status add(ByteSpan piece) = 0;
  virtual std::uint64_t received() const = 0;
  virtual std::uint64_t length() const = 0;
  // kCorrupt when what came is not of this length and hash. Call once.
  virtual Result<StoredAt> finish(const Lane& lane, const Sha256& expected) = 0;
};

// Any thread may call anything. Disk errors are Results; after one the store goes on.
class Store {
 public:
  // Creates the directory (0700) and its marker, or recovers what is there. kInvalid when it is not
  // empty and has no marker, or lies on NFS or Lustre; kUnavailable, naming the pid, when another
  // daemon has it; kDenied, kNoSpace, each saying what to do.
  static Result<std::unique_ptr<Store>> open(const StoreOptions& options, io::Files& files,
                                             Clock& clock, LogSink& log);
  virtual ~Store() = default;

  // Appends to the lane's open segment (`segment_limit` is where a new one begins); an item that is
  // there already is not written again, whatever its lane. kNoSpace when it would break the budget
  // or the floor, or the disk is full: nothing of it stays.
  virtual Result<StoredAt> append(const Lane& lane, const VerifiedItem& item,
                                  Bytes segment_limit) = 0;
  // Writes it to this lane although it is there: it is found in its new place only, and its old
  // bytes go with their segment. For what was staged and is to stay.
  virtual Result<StoredAt> move(const Lane& lane, const VerifiedItem& item,
                                Bytes segment_limit) = 0;
  // As append(), of an item of this length that comes in pieces. Its room is taken at once.
  virtual Result<std::unique_ptr<IncomingItem>> begin_item(Bytes length) = 0;
  virtual std::optional<StoredAt> find(const Sha256& hash) const = 0;
  virtual std::optional<Lane> lane_of(SegmentId id) const = 0;
  // A description of the segment's file of the caller's own, O_RDONLY.
  virtual Result<io::Fd> open_segment(SegmentId id) = 0;
  // Reads an item and checks its checksum. kCorrupt also quarantines it; kNotFound when it has
  // gone.
  virtual Status read(const StoredAt& at, MutableByteSpan out) = 0;

  // The second half of an eviction. The caller has cleared the views' words of these items first
  // (release). At once: they are no longer found, the segment is listed no more, and its blocks
  // count as leaving. Soon, on a thread of the store: truncates to nothing, counts the bytes as
  // free, unlinks; what fails is tried again. Appends that need the room wait for it. Returns the
  // bytes that will be free. Never waits for the disk.
  virtual Bytes evict(SegmentId id) = 0;
  // Waits until no eviction is on its way; false when that takes longer.
  virtual bool wait_until_freed(Duration patience) = 0;
  // The item is bad or unwanted: it is no longer found; its bytes go with its segment.
  virtual void forget(const Sha256& hash) = 0;
  virtual void quarantine(const Sha256& hash) = 0;  // forget, and count it

  virtual std::vector<SegmentInfo> segments() const = 0;
  virtual std::vector<Sha256> items_of(SegmentId id) const = 0;
  virtual StoreStats stats() const = 0;
  virtual void set_disk_limit(Bytes limit) = 0;
  // Re-verifies up to `budget` bytes of suspect items by SHA-256; true when none are left.
  virtual Result<bool> scrub(Bytes budget) = 0;
  // The directory has been removed below a running daemon: makes it anew, empty. The caller clears
  // its views first. False when it is still there.
  virtual Result<bool> recreate_if_gone() = 0;
  // Leaves the clean mark, unless the disk takes too long over what is still to be written to it:
  // a store syncs what it writes all the time. Call once, last.
  virtual void close_cleanly() = 0;
};

}  // namespace quiver::cache
