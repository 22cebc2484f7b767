// SegmentTable: the descriptors of segment files that this process holds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/guarded.h"
#include "base/units.h"
#include "io/file.h"

namespace quiver::cache {

// Owns the descriptors together with the reads that use them: one is closed when it has left the
// table and the last read that holds it ends, so a number is never recycled under a read (a wrong
// read that nothing would catch). Bounded: by default to a third of the process's limit of open
// files, as it is now; a new one displaces one that was not used since it was last looked at. What
// the kernel numbers in the last quarter of the limit is not kept at all: the rest of the process
// needs these. Any thread may call anything; find() takes one short lock of a sixteenth of the
// table and allocates nothing.
class SegmentTable {
 public:
  struct Segment {
    explicit Segment(io::Fd f) : fd(std::move(f)) {}
    io::Fd fd;
    mutable std::atomic<bool> used = true;
  };
  using Handle = std::shared_ptr<const Segment>;
  // Segments of several sessions: their numbers are their daemon's, and each session has a
  // description of its own.
  enum class Owner : std::uint32_t {};

  // The one of this process, for the limit is the process's, however many datasets it reads. In a
  // fork's child it is another, and empty.
  static std::shared_ptr<SegmentTable> of_process();

  explicit SegmentTable(std::optional<std::size_t> limit = {}) : limit_(limit) {}
  Owner add_owner() { return Owner(++owners_); }
  void remove_owner(Owner owner);
  Handle find(Owner owner, SegmentId id) const;  // nullptr when it is not here
  // The one that is there already wins.
  Handle insert(Owner owner, SegmentId id, io::Fd fd);
  void forget(Owner owner, SegmentId id);
  std::size_t size() const;

 private:
  static constexpr std::size_t kShards = 16;
  using Key = std::uint64_t;
  using Shard = std::unordered_map<Key, Handle>;
  static Key key_of(Owner owner, SegmentId id) {
    return std::uint64_t{static_cast<std::uint32_t>(owner)} << 32 | id.value;
  }
  static std::size_t shard_of(Owner owner, SegmentId id) {
    return (id.value + static_cast<std::uint32_t>(owner)) % kShards;
  }
  static Handle displace(Shard& shard);

  const std::optional<std::size_t> limit_;
  std::atomic<std::uint32_t> owners_ = 0;
  std::array<Guarded<Shard>, kShards> shards_;
};

}  // namespace quiver::cache
