// OpenLanes: the lanes that are written to now, one writer at a time each.
//
// A lane's mutex orders the writes to its own files and is therefore held across them; nobody but
// writers of the same lane waits for it. At most kMaxOpen lanes hold descriptors: the one not used
// for longest is parked. A lane that is sealed leaves, so their number is that of open segments.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/guarded.h"
#include "cache/store/segment_writer.h"

namespace quiver::cache {

class OpenLanes {
 public:
  static constexpr std::size_t kMaxOpen = 64;  // two descriptors each

  struct Slot {
    std::mutex busy;
    bool retired = false;  // no longer in the map: look again
    std::optional<SegmentWriter> writer;
    std::uint64_t used = 0;
  };
  // The lane's slot, locked. Its writer is the holder's to change.
  struct Held {
    Held(std::shared_ptr<Slot> s, std::unique_lock<std::mutex> l)
        : slot(std::move(s)), lock(std::move(l)) {}
    Held(Held&&) = default;
    // Unlocks the old slot before it may go.
    Held& operator=(Held&& o) noexcept {
      lock = std::move(o.lock);
      slot = std::move(o.slot);
      return *this;
    }
    std::shared_ptr<Slot> slot;
    std::unique_lock<std::mutex> lock;
    std::optional<SegmentWriter>& writer() const { return slot->writer; }
  };

  Held hold(const Lane& lane);
  std::optional<Held> hold_if_open(const Lane& lane);
  // Takes the lane's slot out of the map. The holder has taken the writer.
  void retire(const Lane& lane, Held& held);
  // To be called by a holder that is about to open descriptors.
  void make_room(const Held& mine);
  std::vector<Lane> lanes() const;

 private:
  Guarded<std::map<Lane, std::shared_ptr<Slot>>> slots_;
  std::atomic<std::uint64_t> clock_{0};
};

}  // namespace quiver::cache
