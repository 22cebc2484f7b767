// An item is pinned when it passes by: what was staged, and belongs to what a dataset in use keeps,
// is moved to its band before its segment goes. So a share that grew, or another dataset with the
// same content, costs no second read of the origin.
#include "cache/server/control.h"

namespace quiver::cache {

// True while items of the segment are being moved: it stays until they are. Tried once for each
// change of a share: what could not be moved (no room, a bad disk) goes.
bool Control::rescue(SegmentId id) {
  if (moving_.contains(id)) return true;
  if (rescued_.contains(id)) return false;
  bool all = true, any = false;
  for (const Sha256& hash : context_.store.items_of(id)) {
    if (keeper_of(hash) == nullptr) continue;
    any = true;
    all = rescue_item(hash, id) && all;
  }
  if (all) rescued_.insert(id);
  return any;
}

// False when there are too many at once: it is asked for again.
bool Control::rescue_item(const Sha256& hash, SegmentId from) {
  const auto at = context_.store.find(hash);
  const DatasetState* const keeper = keeper_of(hash);
  if (!at || at->segment != from || keeper == nullptr) return true;
  auto& moving = moving_[from];
  if (moving.contains(hash)) return true;
  const bool full = moving.size() >= limits::kMovesAtOnce ||
                    (in_pool_ != 0 && in_pool_bytes_ + at->length > fetch_memory());
  if (full) {
    if (moving.empty()) moving_.erase(from);
    return false;
  }
  FetchTask task;
  task.hash = hash;
  task.staged = at;
  task.length = at->length;
  task.lane = keeper->lane(hash);
  task.segment_limit = keeper->segment_limit(true);
  moving.insert(hash);
  ++in_pool_;
  in_pool_bytes_ += at->length;
  context_.pool.submit(std::move(task));
  return true;
}

void Control::moved(const Sha256& hash, Bytes length, SegmentId from, bool done) {
  --in_pool_;
  in_pool_bytes_ -= length;
  if (const auto moving = moving_.find(from); moving != moving_.end()) {
    moving->second.erase(hash);
    if (moving->second.empty()) moving_.erase(moving);
  }
  if (!done) return;
  ++relocations_;
  if (const auto at = context_.store.find(hash)) publish(hash, *at);
}

}  // namespace quiver::cache
