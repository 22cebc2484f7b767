// Room: what goes when there is too little of it.
#include <algorithm>

#include "base/text.h"
#include "cache/server/control.h"

namespace quiver::cache {

// A staged segment is done when what was held in it is held no more. One of which nothing was held
// may have what is about to be published: it gets a second.
bool Control::staged_done(SegmentId id, Instant now) {
  const auto held = holds_.find(id);
  if (held != holds_.end()) return held->second == 0;
  const Instant since = empty_since_.try_emplace(id, now).first->second;
  return now - since >= std::chrono::seconds(1);
}

void Control::evict_done(Instant now) {
  if (now < next_evict_) return;
  next_evict_ = now + limits::kEvictEvery;
  std::vector<SegmentId> done;
  for (const SegmentInfo& segment : context_.store.segments()) {
    if (segment.lane.pinned || rescue(segment.id) || segment.open) continue;
    if (staged_done(segment.id, now)) done.push_back(segment.id);
  }
  for (const SegmentId id : done) evict_segment(id);
}

void Control::evict_segment(SegmentId id) {
  for (const Sha256& hash : context_.store.items_of(id)) {
    for (auto& [root, dataset] : datasets_) {
      if (dataset->withdraw(hash, id, holds_) != 0) changed_.insert(dataset.get());
    }
  }
  holds_.erase(id);
  empty_since_.erase(id);
  moving_.erase(id);
  rescued_.erase(id);
  needed_.erase(id);
  context_.store.evict(id);
}

Control::Needed Control::needed(SegmentId id) {
  const auto known = needed_.find(id);
  if (known != needed_.end()) return known->second;
  bool any = false, all = true;
  for (const Sha256& hash : context_.store.items_of(id)) {
    const bool kept = keeper_of(hash) != nullptr;
    any = any || kept;
    all = all && kept;
    if (any && !all) break;
  }
  const Needed needed = !any ? Needed::kNothing : all ? Needed::kAll : Needed::kSome;
  if (any) needed_[id] = needed;
  return needed;
}

// A dataset in use that pins this content.
const DatasetState* Control::keeper_of(const Sha256& hash) const {
  for (const auto& [root, dataset] : datasets_) {
    if (dataset->unused_since) continue;
    const auto entries = dataset->entries(hash);
    if (!entries.empty() && dataset->pinned().items.contains(entries.front())) {
      return dataset.get();
    }
  }
  return nullptr;
}

const DatasetState* Control::dataset_named(const std::string& public_id) const {
  for (const auto& [root, dataset] : datasets_) {
    if (dataset->public_id() == public_id) return dataset.get();
  }
  return nullptr;
}

// What is least missed: staged and wanted by nobody, then what belongs to no dataset in use (least
// recently used first), then bands beyond their dataset's share, at last the one that a share that
// shrank ends in: what of it is pinned is read again into a file without the rest.
bool Control::evict_one() {
  struct Victim {
    std::uint64_t rank, used;
    SegmentId id;
    auto operator<=>(const Victim&) const = default;
  };
  const Instant now = context_.clock.now();
  std::vector<Victim> victims;
  for (const SegmentInfo& segment : context_.store.segments()) {
    if (segment.items == 0 && segment.open) continue;
    if (moving_.contains(segment.id)) continue;  // what is to stay of it is being read
    if (!segment.lane.pinned) {
      if (staged_done(segment.id, now)) victims.push_back({0, 0, segment.id});
      continue;
    }
    const DatasetState* owner = dataset_named(segment.lane.group);
    const bool live = owner != nullptr && !owner->unused_since;
    victims.push_back({live ? 2u : 1u, owner == nullptr ? 0 : owner->last_used, segment.id});
  }
  std::sort(victims.begin(), victims.end());
  for (const Needed most : {Needed::kNothing, Needed::kSome}) {
    for (const Victim& victim : victims) {
      if (victim.rank > 0 && needed(victim.id) != most) continue;
      evict_segment(victim.id);
      return true;
    }
  }
  return false;
}

// The limit has become less than what there is: at a start, or because others fill the disk. True
// when there is more to evict, after others have had a turn.
bool Control::shrink(Instant now) {
  while (context_.store.stats().staying() > limit_) {
    if (!evict_one() && !(dismiss_guests() && evict_one())) return false;
    if (context_.clock.now() - now > limits::kShrinkAtOnce) return true;
  }
  return false;
}

bool Control::dismiss_guests() {
  bool any = false;
  for (auto& [root, dataset] : datasets_) {
    for (const ItemId id : dataset->plan().dismiss_guests()) {
      dataset->ledger.left(id, Again::kNoRoom);
      dataset->let_go(id, holds_);
      any = true;
    }
  }
  return any;
}

Status Control::make_room(Bytes length) {
  const Bytes need = length + Bytes(4 * kBandCost);
  if (need > limit_) {
    return error(Code::kNoSpace,
                 "an item of {} does not fit into the cache of {}; raise disk_limit",
                 format_bytes(length), format_bytes(limit_));
  }
  bool freed = false;
  do {
    const StoreStats now = context_.store.stats();
    // With room in the budget it is the disk that is full: something has to go all the same.
    // A little more than this one needs, for those that come at the same time.
    if (now.staying() + need * 2 <= now.limit && freed) return {};
    freed = evict_one() || (dismiss_guests() && evict_one());
  } while (freed);
  const StoreStats now = context_.store.stats();
  if (now.staying() + need <= now.limit) return {};
  return error(Code::kNoSpace, "the cache is full ({} of {}) with what is in use; raise disk_limit",
               format_bytes(now.allocated), format_bytes(now.limit));
}

// In a cache of a few steps all room may be held by what is staged ahead, of which nobody takes any
// before the step that lacks this item is complete. And what is itself only staged ahead must not
// sit in a thread that somebody's fetch waits for.
Status Control::make_room_for(const Sha256& hash, Bytes length) {
  Status room = make_room(length);
  const auto flight = flights_.find(hash);
  if (room || flight == flights_.end()) return room;
  if (flight->second.directed) {
    while (!room && evict_staged()) room = make_room(length);
  } else if (flight->second.staged) {
    return error(Code::kCancelled, "staged ahead, and there is no room for that");
  }
  return room;
}

// The segment of which the least is held: it costs least to read again. One of which nothing is may
// have what is about to be published.
bool Control::evict_staged() {
  std::optional<SegmentId> victim;
  std::uint32_t least = 0;
  for (const SegmentInfo& segment : context_.store.segments()) {
    if (segment.lane.pinned || segment.open || moving_.contains(segment.id)) continue;
    const auto held = holds_.find(segment.id);
    if (held == holds_.end() || held->second == 0) continue;
    if (!victim || held->second < least) victim = segment.id, least = held->second;
  }
  if (victim) evict_segment(*victim);
  return victim.has_value();
}

EvictReply Control::evict(const std::string& public_id) {
  EvictReply reply;
  const DatasetState* named = dataset_named(public_id);
  std::set<std::string> groups;
  for (const SegmentInfo& segment : context_.store.segments()) {
    bool chosen = public_id.empty() || segment.lane.group == public_id;
    if (!chosen && named != nullptr && segment.lane.group == "incoming") {
      const auto items = context_.store.items_of(segment.id);
      chosen = std::any_of(items.begin(), items.end(),
                           [&](const Sha256& hash) { return !named->entries(hash).empty(); });
    }
    if (!chosen) continue;
    for (const Sha256& hash : context_.store.items_of(segment.id)) {
      for (auto& [root, dataset] : datasets_) {
        for (const ItemId id : dataset->entries(hash)) dataset->ledger.left(id, Again::kNoRoom);
      }
    }
    evict_segment(segment.id);
    reply.bytes += segment.allocated.value;
    groups.insert(segment.lane.group);
  }
  reply.datasets = groups.size();
  return reply;
}

void Control::rescan() {
  for (auto& [root, dataset] : datasets_) dataset->rescan = 0;
}

void Control::rescan_some(DatasetState& dataset) {
  const std::uint32_t last =
      std::min<std::uint32_t>(dataset.size(), dataset.rescan + limits::kRescanPerTick);
  for (; dataset.rescan < last; ++dataset.rescan) {
    const ItemId id(dataset.rescan);
    const Sha256 hash = dataset.content(id);
    const auto at = stored(dataset, id);
    const ViewWord word = dataset.view().word(id);
    const bool here = dataset.here(id);
    if (here && at && at->segment == word.segment() && at->offset == word.offset()) continue;
    if (here && dataset.withdraw(hash, std::nullopt, holds_) != 0) changed_.insert(&dataset);
    if (at) publish(hash, *at);
  }
  if (dataset.rescan == dataset.size()) dataset.rescan = UINT32_MAX;
}

}  // namespace quiver::cache
