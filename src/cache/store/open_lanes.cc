#include "cache/store/open_lanes.h"

#include <algorithm>
#include <utility>

namespace quiver::cache {

OpenLanes::Held OpenLanes::hold(const Lane& lane) {
  for (;;) {
    auto slot = slots_.with([&](auto& slots) {
      auto& found = slots[lane];
      if (!found) found = std::make_shared<Slot>();
      return found;
    });
    std::unique_lock lock(slot->busy);
    if (slot->retired) continue;
    slot->used = ++clock_;
    return Held(std::move(slot), std::move(lock));
  }
}

std::optional<OpenLanes::Held> OpenLanes::hold_if_open(const Lane& lane) {
  const bool open = slots_.with([&](const auto& slots) { return slots.contains(lane); });
  if (!open) return std::nullopt;
  return hold(lane);
}

void OpenLanes::retire(const Lane& lane, Held& held) {
  held.slot->writer.reset();
  held.slot->retired = true;
  slots_.with([&](auto& slots) { slots.erase(lane); });
}

// Slots in use are passed over, so nobody waits; then there are a few more open than kMaxOpen, at
// most one for each thread that appends.
void OpenLanes::make_room(const Held& mine) {
  auto all = slots_.with([&](const auto& slots) {
    std::vector<std::shared_ptr<Slot>> copy;
    copy.reserve(slots.size());
    for (const auto& [lane, slot] : slots) {
      if (slot != mine.slot) copy.push_back(slot);
    }
    return copy;
  });
  std::vector<std::pair<std::uint64_t, Slot*>> open;
  for (const auto& slot : all) {
    const std::unique_lock lock(slot->busy, std::try_to_lock);
    if (lock && slot->writer && !slot->writer->parked()) open.emplace_back(slot->used, slot.get());
  }
  if (open.size() < kMaxOpen) return;
  // A quarter at once, so that the look at all of them is rare.
  std::ranges::sort(open);
  open.resize(open.size() - kMaxOpen * 3 / 4);
  for (const auto& [used, slot] : open) {
    const std::unique_lock lock(slot->busy, std::try_to_lock);
    if (lock && slot->writer) slot->writer->park();
  }
}

std::vector<Lane> OpenLanes::lanes() const {
  return slots_.with([](const auto& slots) {
    std::vector<Lane> all;
    for (const auto& [lane, slot] : slots) all.push_back(lane);
    return all;
  });
}

}  // namespace quiver::cache
