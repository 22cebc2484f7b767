// View: what a node holds of one dataset, as a table in shared memory that readers look up without
// asking anybody.
//
// The daemon is the only writer. Per item: a word (where it lies) and a checksum (what a read of it
// must give; a function of the content, so once written it never changes). Then the ring of orders:
// the items in the order in which the staging duty has ordered them from the origin, by place, a
// number that only rises. Then the counters of the header: heartbeat, changes (a futex word),
// origin bytes. docs/formats/view.md has the layout; it is versioned and frozen by golden bytes.
//
// Order of stores: checksum, then word (release). Eviction clears words first (release), then
// truncates the file: a reader that raced gets a short read, which is a miss, never a wrong one.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "base/units.h"
#include "io/file.h"
#include "io/memory.h"

namespace quiver::cache {

enum class Residency : std::uint8_t { kAbsent = 0, kHere = 1, kNear = 2 };

// One 64-bit word: 2 bits residency, 1 bit pinned, 25 bits segment, 36 bits offset.
class ViewWord {
 public:
  constexpr ViewWord() = default;
  constexpr explicit ViewWord(std::uint64_t bits) : bits_(bits) {}
  static ViewWord here(SegmentId segment, std::uint64_t offset, bool pinned);
  static ViewWord near();
  Residency residency() const;
  bool pinned() const;
  SegmentId segment() const;
  std::uint64_t offset() const;
  std::uint64_t bits() const { return bits_; }
  bool operator==(const ViewWord&) const = default;

 private:
  std::uint64_t bits_ = 0;
};
inline constexpr std::uint32_t kMaxSegments = 1u << 25;
inline constexpr std::uint64_t kMaxSegmentBytes = std::uint64_t{1} << 36;

// Counters of the daemon for this dataset. Monotone.
struct ViewCounters {
  std::uint64_t origin_bytes = 0, origin_reads = 0, origin_errors = 0, evicted_items = 0;
};

// The daemon's side. One thread writes.
class ViewWriter {
 public:
  static Result<ViewWriter> create(std::uint32_t items);
  int readers_fd() const;  // to be passed to sessions
  Bytes memory() const;    // charged to the memory budget
  std::uint32_t size() const;

  void publish(ItemId id, ViewWord word, std::uint32_t checksum);
  void clear(ItemId id);
  ViewWord word(ItemId id) const;
  // Appends an order at place head(); it may name an item that is here already.
  std::uint64_t order(ItemId id);
  std::uint64_t head() const;              // the next place
  void retire_until(std::uint64_t place);  // places below it are outside the window
  std::uint64_t tail() const;
  void beat(Instant now);  // the heartbeat: what tells of life is that it moves
  void set_counters(const ViewCounters& counters);
  void notify();  // wakes readers that wait for a change

 private:
  ViewWriter() = default;
  io::PublishedMemory memory_;
  std::uint32_t size_ = 0;
};

// A reader's side, in any number of processes and threads. Never trusts the table: a place outside
// a segment is a short read, an id is bounds-checked against the manifest's size.
class ViewReader {
 public:
  // kVersion, kInvalid when the memory is not a view of `items` items.
  static Result<ViewReader> map(const io::Fd& fd, std::uint32_t items);
  std::uint32_t size() const;
  ViewWord word(ItemId id) const;  // acquire
  std::uint32_t checksum(ItemId id) const;
  std::uint64_t head() const;  // acquire: orders below it are readable
  std::uint64_t tail() const;
  // The item ordered at `place`; nullopt when the place has been overwritten or is not yet there.
  std::optional<ItemId> ordered(std::uint64_t place) const;
  ViewCounters counters() const;
  Instant heartbeat() const;
  // The change counter; wait_change returns when it is not `seen` any more, or after `timeout`.
  std::uint32_t changes() const;
  bool wait_change(std::uint32_t seen, Duration timeout) const;

 private:
  ViewReader() = default;
  io::Mapping memory_;
  std::uint32_t size_ = 0;
};

}  // namespace quiver::cache
