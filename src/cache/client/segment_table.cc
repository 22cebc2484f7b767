#include "cache/client/segment_table.h"

#include <sys/resource.h>

#include <algorithm>

#include "cache/client/shared_memory.h"

namespace quiver::cache {
namespace {

std::size_t open_file_limit() {
  rlimit limit{};
  constexpr std::size_t kMost = 1 << 16;
  if (::getrlimit(RLIMIT_NOFILE, &limit) < 0) return 256;
  return std::min<std::size_t>(limit.rlim_cur, kMost);
}

struct OfProcess {
  ForkMark mark;
  std::shared_ptr<SegmentTable> table = std::make_shared<SegmentTable>();
};

}  // namespace

std::shared_ptr<SegmentTable> SegmentTable::of_process() {
  // Never destroyed: sessions may end while the process does, and a parent's locks may be held.
  static std::atomic<OfProcess*> current = new OfProcess;
  OfProcess* here = current.load(std::memory_order_acquire);
  if (here->mark.in_maker()) return here->table;
  auto mine = std::make_unique<OfProcess>();
  if (!current.compare_exchange_strong(here, mine.get())) return here->table;
  return mine.release()->table;
}

SegmentTable::Handle SegmentTable::find(Owner owner, SegmentId id) const {
  return shards_[shard_of(owner, id)].with([&](const Shard& shard) -> Handle {
    const auto it = shard.find(key_of(owner, id));
    if (it == shard.end()) return nullptr;
    if (!it->second->used.load(std::memory_order_relaxed)) {
      it->second->used.store(true, std::memory_order_relaxed);
    }
    return it->second;
  });
}

SegmentTable::Handle SegmentTable::displace(Shard& shard) {
  auto victim = shard.begin();
  for (auto it = shard.begin(); it != shard.end(); ++it) {
    if (!it->second->used.exchange(false, std::memory_order_relaxed)) victim = it;
  }
  Handle gone = std::move(victim->second);
  shard.erase(victim);
  return gone;
}

SegmentTable::Handle SegmentTable::insert(Owner owner, SegmentId id, io::Fd fd) {
  const std::size_t files = open_file_limit();
  const std::size_t most = std::max<std::size_t>(limit_.value_or(files / 3) / kShards, 1);
  const bool keep = static_cast<std::size_t>(fd.get()) < files - files / 4;
  auto segment = std::make_shared<const Segment>(std::move(fd));
  std::vector<Handle> displaced;  // closed outside the lock
  return shards_[shard_of(owner, id)].with([&](Shard& shard) -> Handle {
    const Key key = key_of(owner, id);
    if (const auto it = shard.find(key); it != shard.end()) return it->second;
    if (!keep && !shard.empty()) displaced.push_back(displace(shard));
    while (shard.size() >= most) displaced.push_back(displace(shard));
    if (keep) shard.emplace(key, segment);
    return segment;
  });
}

void SegmentTable::forget(Owner owner, SegmentId id) {
  Handle gone;  // closed outside the lock
  shards_[shard_of(owner, id)].with([&](Shard& shard) {
    const auto it = shard.find(key_of(owner, id));
    if (it == shard.end()) return;
    gone = std::move(it->second);
    shard.erase(it);
  });
}

void SegmentTable::remove_owner(Owner owner) {
  for (auto& guarded : shards_) {
    std::vector<Handle> gone;  // closed outside the lock
    guarded.with([&](Shard& shard) {
      std::erase_if(shard, [&](auto& entry) {
        if (entry.first >> 32 != static_cast<std::uint32_t>(owner)) return false;
        gone.push_back(std::move(entry.second));
        return true;
      });
    });
  }
}

std::size_t SegmentTable::size() const {
  std::size_t n = 0;
  for (const auto& shard : shards_) n += shard.with([](const Shard& s) { return s.size(); });
  return n;
}

}  // namespace quiver::cache
