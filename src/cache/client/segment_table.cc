#include "cache/client/segment_table.h"

namespace quiver::cache {

SegmentTable::Handle SegmentTable::find(SegmentId id) const {
  return shards_[shard_of(id)].with([&](const Shard& shard) -> Handle {
    const auto it = shard.find(id);
    if (it == shard.end()) return nullptr;
    if (!it->second->used.load(std::memory_order_relaxed)) {
      it->second->used.store(true, std::memory_order_relaxed);
    }
    return it->second;
  });
}

SegmentTable::Handle SegmentTable::insert(SegmentId id, io::Fd fd) {
  auto segment = std::make_shared<const Segment>(std::move(fd));
  Handle displaced;  // closed outside the lock
  return shards_[shard_of(id)].with([&](Shard& shard) -> Handle {
    if (const auto it = shard.find(id); it != shard.end()) return it->second;
    if (shard.size() >= limit_per_shard_) {
      auto victim = shard.begin();
      for (auto it = shard.begin(); it != shard.end(); ++it) {
        if (!it->second->used.exchange(false, std::memory_order_relaxed)) victim = it;
      }
      displaced = std::move(victim->second);
      shard.erase(victim);
    }
    return shard.emplace(id, std::move(segment)).first->second;
  });
}

void SegmentTable::forget(SegmentId id) {
  Handle gone;  // closed outside the lock
  shards_[shard_of(id)].with([&](Shard& shard) {
    const auto it = shard.find(id);
    if (it == shard.end()) return;
    gone = std::move(it->second);
    shard.erase(it);
  });
}

std::size_t SegmentTable::size() const {
  std::size_t n = 0;
  for (const auto& shard : shards_) n += shard.with([](const Shard& s) { return s.size(); });
  return n;
}

}  // namespace quiver::cache
