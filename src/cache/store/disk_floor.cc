#include "cache/store/disk_floor.h"

#include "base/text.h"

namespace quiver::cache {
namespace {

constexpr Duration kInterval = std::chrono::seconds(1);
constexpr Bytes kInterim = 16_MiB;

}  // namespace

Status DiskFloor::take(Bytes bytes) {
  const Instant now = clock_.now();
  const bool stale = state_.with([&](const State& s) {
    return !s.space || now - s.asked >= kInterval || s.since >= kInterim;
  });
  if (!stale && count(bytes)) return {};
  // Of what was counted some may not have been written, and some may be gone again.
  const io::DiskSpace space = TRY(files_.space(path_));
  state_.with([&](State& s) { s = {space, now, Bytes()}; });
  return count(bytes);
}

Status DiskFloor::count(Bytes bytes) {
  return state_.with([&](State& s) -> Status {
    if (!s.space) return {};  // an eviction between the two looks: there is room
    const auto floor = Bytes(static_cast<std::uint64_t>(floor_ * double(s.space->total.value)));
    if (floor + s.since + bytes > s.space->available) {
      return error(Code::kNoSpace,
                   "the disk of {} has {} left and {} of it stay free for others: free some or "
                   "lower disk_floor",
                   path_, format_bytes(s.space->available), format_bytes(floor));
    }
    s.since += bytes;
    return {};
  });
}

}  // namespace quiver::cache
