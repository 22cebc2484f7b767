// SegmentTable: the descriptors of segment files that this process holds for one session.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <unordered_map>

#include "base/guarded.h"
#include "base/units.h"
#include "io/file.h"

namespace quiver::cache {

// Owns the descriptors together with the reads that use them: one is closed when it has left the
// table and the last read that holds it ends, so a number is never recycled under a read (a wrong
// read that nothing would catch). At most `limit`; a new one displaces one that was not used since
// it was last looked at. Any thread may call anything; find() takes one short lock of a sixteenth
// of the table and allocates nothing.
class SegmentTable {
 public:
  struct Segment {
    explicit Segment(io::Fd f) : fd(std::move(f)) {}
    io::Fd fd;
    mutable std::atomic<bool> used = true;
  };
  using Handle = std::shared_ptr<const Segment>;

  explicit SegmentTable(std::size_t limit) : limit_per_shard_((limit + kShards - 1) / kShards) {}
  Handle find(SegmentId id) const;  // nullptr when it is not here
  // The one that is there already wins.
  Handle insert(SegmentId id, io::Fd fd);
  void forget(SegmentId id);
  std::size_t size() const;

 private:
  static constexpr std::size_t kShards = 16;
  using Shard = std::unordered_map<SegmentId, Handle>;
  static std::size_t shard_of(SegmentId id) { return id.value % kShards; }

  const std::size_t limit_per_shard_;
  std::array<Guarded<Shard>, kShards> shards_;
};

}  // namespace quiver::cache
