#include "cache/server/dataset_state.h"

#include <algorithm>
#include <cmath>

#include "cache/view/view_layout.h"

namespace quiver::cache {

DatasetState::DatasetState(std::shared_ptr<const Manifest> manifest, ViewWriter view)
    : ledger(manifest->size()),
      manifest_(std::move(manifest)),
      public_id_(quiver::public_id(manifest_->root())),
      order_(
          manifest_->size(),
          [m = manifest_.get()](ItemId id) -> const Sha256& { return *m->item(id).hash; },
          manifest_->total_bytes()),
      view_(std::move(view)),
      pinned_{ItemSet(manifest_->size()), Bytes(0), 0},
      plan_(manifest_->size(), [this](ItemId id) { return staged_cost(id); }) {
  const auto length_of = [this](ItemId id) { return length(id); };
  need_ = disk_need(order_, length_of);
  distinct_ = choose_pinned(order_, length_of, need_, Bytes(UINT64_MAX)).bytes;
}

Result<std::unique_ptr<DatasetState>> DatasetState::build(std::shared_ptr<const Manifest> manifest,
                                                          const Store& store,
                                                          std::optional<ReadLog> log) {
  auto view = TRY(ViewWriter::create(manifest->size()));
  std::unique_ptr<DatasetState> state(new DatasetState(std::move(manifest), std::move(view)));
  if (state->manifest_->provisional()) {
    state->unread_.assign(state->size(), true);
    state->unread_count_ = state->size();
    state->contents_.resize(state->size());
    for (std::uint32_t i = 0; i < state->size(); ++i) {
      const Item item = state->item(ItemId(i));
      if (!item.provisional) state->know(ItemId(i), *item.hash);
    }
    if (log) {
      for (const auto& [id, content] : log->take_rows()) state->know(id, content);
    }
    state->log_ = std::move(log);
  }
  std::map<SegmentId, bool> pinned_lane;
  for (const ItemId id : state->order_.items()) {
    if (state->unread(id)) continue;
    const auto at = store.find(state->content(id));
    if (!at || at->length != state->length(id)) continue;
    const auto known = pinned_lane.find(at->segment);
    if (known == pinned_lane.end()) {
      const auto lane = store.lane_of(at->segment);
      if (!lane) continue;
      pinned_lane[at->segment] = lane->pinned;
    }
    state->show(id, *at, pinned_lane[at->segment], nullptr);
  }
  return state;
}

std::span<const ItemId> DatasetState::entries(const Sha256& hash) const {
  if (provisional()) {
    const auto found = by_content_.find(hash);
    if (found != by_content_.end()) return found->second;
  }
  return order_.find(hash);
}

const Sha256& DatasetState::content(ItemId id) const {
  if (provisional() && !unread_[id.value]) return contents_[id.value];
  return *item(id).hash;
}

void DatasetState::know(ItemId id, const Sha256& content) {
  if (!unread_[id.value]) return;
  unread_[id.value] = false;
  --unread_count_;
  contents_[id.value] = content;
  by_content_[content].push_back(id);
}

void DatasetState::read_as(const Sha256& name, const Sha256& content) {
  for (const ItemId id : order_.find(name)) {
    if (!unread(id)) continue;
    know(id, content);
    // An item of which no row was written is read again after a restart: no more than that.
    if (log_ && !log_->add(id, content)) log_.reset();
    if (!pin_rule_.pins(content, length(id))) continue;
    if (by_content_[content].size() == 1) pinned_.bytes += length(id);
    pinned_.items.insert(id);
  }
}

void DatasetState::became(const Sha256& root) {
  whole_ = root;
  if (!log_) return;
  (void)log_->remove();  // what stays of it is foreign to the cache, and counted
  log_.reset();
}

void DatasetState::settle(const Store& store) {
  std::map<SegmentId, bool> there;
  for (std::uint32_t i = 0; i < size(); ++i) {
    const ViewWord word = view_.word(ItemId(i));
    if (word.residency() != Residency::kHere) continue;
    const auto [known, fresh] = there.try_emplace(word.segment());
    if (fresh) known->second = store.lane_of(word.segment()).has_value();
    if (known->second) continue;
    view_.clear(ItemId(i));
    plan_.evicted(ItemId(i));
    --items_here_;
    bytes_here_ -= length(ItemId(i));
  }
}

// On disk: the bytes, and this item's part of the rounding of its segment's files.
Bytes DatasetState::staged_cost(ItemId id) const {
  if (pinned_.items.contains(id)) return Bytes(0);
  const Bytes bytes = length(id), segment = segment_limit(false);
  const double part = static_cast<double>(std::min(bytes, segment).value) /
                      static_cast<double>(std::max<std::uint64_t>(segment.value, 1));
  return bytes + Bytes(kRowCost + static_cast<std::uint64_t>(part * kBandCost));
}

// The view, the manifest, the hash order, the plan's state, the ledger and the set of what is
// pinned.
Bytes DatasetState::memory_of(const Manifest& manifest) {
  return Bytes(layout::view_size(manifest.size())) + Bytes(manifest.file_bytes().size_bytes()) +
         Bytes(manifest.size()) * 9;
}

void DatasetState::show(ItemId id, const StoredAt& at, bool pinned_lane, StagedHolds* holds) {
  const bool pinned = pinned_lane && pinned_.items.contains(id);
  if (!here(id)) {
    ++items_here_;
    bytes_here_ += at.length;
  }
  view_.publish(id, ViewWord::here(at.segment, at.offset, pinned), at.checksum);
  plan_.arrived(id, pinned);
  if (holds != nullptr && plan_.holds(id)) hold(id, *holds);
}

void DatasetState::publish(const Sha256& hash, const StoredAt& at, const Store& store,
                           StagedHolds& holds) {
  const auto lane = store.lane_of(at.segment);
  const auto entries = this->entries(hash);
  for (const ItemId id : entries) {
    if (unread(id) || length(id) != at.length) continue;
    if (!here(id) && pinned_.items.contains(id)) {
      ++pinned_here_;
      if (id == entries.front()) pinned_bytes_here_ += at.length;
    }
    show(id, at, lane && lane->pinned, &holds);
  }
}

std::uint32_t DatasetState::withdraw(const Sha256& hash, std::optional<SegmentId> segment,
                                     StagedHolds& holds) {
  std::uint32_t gone = 0;
  const auto entries = this->entries(hash);
  for (const ItemId id : entries) {
    if (!here(id) || (segment && view_.word(id).segment() != *segment)) continue;
    ledger.left(id, why_gone(id, segment.has_value()));
    view_.clear(id);
    let_go(id, holds);
    plan_.evicted(id);
    --items_here_;
    bytes_here_ -= length(id);
    if (pinned_.items.contains(id)) {
      --pinned_here_;
      if (id == entries.front()) pinned_bytes_here_ -= length(id);
    }
    ++gone;
  }
  counters.evicted_items += gone;
  return gone;
}

// Unless it was seen to leave before: staged items that nobody held were passed on their way.
Again DatasetState::why_gone(ItemId id, bool evicted) const {
  if (!evicted) return Again::kDamaged;
  if (view_.word(id).pinned()) return unused_since ? Again::kNoRoom : Again::kShareMoved;
  return plan_.wanted(id) ? Again::kLeftStaging : Again::kNewEpoch;
}

void DatasetState::withdraw_all(StagedHolds& holds) {
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (!here(ItemId(i))) continue;
    view_.clear(ItemId(i));
    let_go(ItemId(i), holds);
    plan_.evicted(ItemId(i));
  }
  items_here_ = pinned_here_ = 0;
  bytes_here_ = pinned_bytes_here_ = Bytes(0);
}

// What is pinned: a prefix of the hash order.
void DatasetState::choose(Bytes share, Bytes pinned) {
  const auto length_of = [this](ItemId id) { return length(id); };
  if (!provisional()) {
    pinned_ = choose_pinned(order_, length_of, pinned, share);
    return;
  }
  const double part = static_cast<double>(pinned.value) / static_cast<double>(need_.value);
  pin_rule_ = PinRule{
      public_id_,          static_cast<std::uint64_t>(std::ldexp(std::min(part, 0.999), 64)),
      pinned >= need_,     share / 16,
      order_.band_mask(),  segment_limit(true),
      segment_limit(false)};
  pinned_ = {ItemSet(size()), Bytes(0), 0};
  for (const auto& [content, ids] : by_content_) {
    if (!pin_rule_.pins(content, length(ids.front()))) continue;
    for (const ItemId id : ids) pinned_.items.insert(id);
    pinned_.bytes += length(ids.front());
  }
}

void DatasetState::set_share(Bytes share, const Window& window, const Store& store,
                             StagedHolds& holds) {
  share_ = share;
  window_ = window.window;
  choose(share, window.pinned);
  // Two segments of slack: one that is being filled, one of which the last item is still wanted.
  const Bytes slack = std::min(segment_limit(false) * 2, window_ / 4);
  plan_.set_window(window_ - slack);
  std::map<SegmentId, bool> pinned_lane;
  pinned_here_ = 0;
  pinned_bytes_here_ = Bytes(0);
  const Sha256* last = nullptr;  // in hash order equal content lies side by side
  for (const ItemId id : order_.items()) {
    const ViewWord word = view_.word(id);
    if (word.residency() != Residency::kHere) continue;
    if (pinned_.items.contains(id)) {
      const Sha256* const hash = &order_.hash(id);
      const bool again =
          provisional() ? entries(content(id)).front() != id : last != nullptr && *last == *hash;
      ++pinned_here_;
      if (!again) pinned_bytes_here_ += length(id);
      last = hash;
    }
    const auto [known, fresh] = pinned_lane.try_emplace(word.segment());
    if (fresh) {
      const auto lane = store.lane_of(word.segment());
      known->second = lane && lane->pinned;
    }
    const bool pinned = known->second && pinned_.items.contains(id);
    if (pinned == word.pinned()) continue;
    if (!pinned) ledger.left(id, Again::kShareMoved);
    const auto at = store.find(content(id));
    if (at && at->segment == word.segment()) show(id, *at, known->second, &holds);
  }
}

void DatasetState::hold(ItemId id, StagedHolds& holds) {
  const ViewWord word = view_.word(id);
  if (word.residency() != Residency::kHere) return;
  ledger.kept(id);
  if (word.pinned()) return let_go(id, holds);  // it may have been staged before
  const auto held = held_in_.find(id);
  if (held != held_in_.end() && held->second == word.segment()) return;
  let_go(id, holds);
  held_in_[id] = word.segment();
  ++holds[word.segment()];
}

void DatasetState::let_go(ItemId id, StagedHolds& holds) {
  const auto held = held_in_.find(id);
  if (held == held_in_.end()) return;
  --holds[held->second];
  held_in_.erase(held);
}

void DatasetState::let_all_go(StagedHolds& holds) {
  for (const auto& [id, segment] : held_in_) --holds[segment];
  held_in_.clear();
}

Lane DatasetState::lane(const Sha256& hash) const {
  const auto entries = this->entries(hash);
  if (!entries.empty() && pinned_.items.contains(entries.front())) {
    return Lane{public_id_, true, order_.band(hash)};
  }
  return Lane{public_id_, false, 0};
}

// A staged segment is at most 1/32 of the window, but not so small that the rounding of its files
// weighs; a band of what is pinned is one segment unless it is huge.
Bytes DatasetState::segment_limit(bool pinned) const {
  if (pinned) return std::max(Bytes(64_MiB), share_ / 64);
  return std::max(window_ / 32, std::min(Bytes(256_KiB), window_ / 8));
}

}  // namespace quiver::cache
