// PinRule: where an item goes whose hash is known only when it has been read. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/hash.h"
#include "base/units.h"
#include "cache/store/store.h"

namespace quiver::cache {

// A dataset that is digested as it is read cannot choose what to pin beforehand: its items are
// pinned as they come, when their hash lies in the part of the hash order that the share holds. So
// what is pinned at the end is what the finished manifest pins.
struct PinRule {
  std::string group;
  std::uint64_t below = 0;  // hashes with a smaller prefix are pinned
  bool all = false;         // the share holds the dataset
  Bytes longest;            // longer ones are not, unless all are
  std::uint8_t band_mask = 0xFF;
  Bytes pinned_segment, staged_segment;  // where a new one begins

  bool pins(const Sha256& hash, Bytes length) const {
    return all || (hash.prefix() < below && length <= longest);
  }
  Lane lane(const Sha256& hash, Bytes length) const {
    if (!pins(hash, length)) return Lane{group, false, 0};
    return Lane{group, true, static_cast<std::uint8_t>(hash.bytes[0] & band_mask)};
  }
};

}  // namespace quiver::cache
