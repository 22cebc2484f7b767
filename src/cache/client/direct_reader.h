// DirectReader: the way to the origin without a daemon.
#pragma once

#include <atomic>
#include <memory>
#include <stop_token>

#include "base/guarded.h"
#include "cache/manifest/manifest.h"
#include "cache/origin/origin.h"

namespace quiver::cache {

// Reads items from the origin and compares each with its SHA-256, where that is known. Opens the
// origin at the first read. Any thread may read; at most `limit` reads are under way, further
// callers wait for one to end (the origin has deadlines of its own) or for their stop.
class DirectReader {
 public:
  DirectReader(OriginSettings settings, OriginContext context, int limit);
  // Errors are those of Origin::read, and kChanged for bytes that are not the manifest's.
  Status read(const Manifest& manifest, ItemId id, MutableByteSpan out, std::stop_token stop);
  Bytes body_bytes() const { return Bytes(body_bytes_.load()); }

 private:
  Result<std::shared_ptr<Origin>> origin();
  Status read_verified(Origin& origin, const Manifest& manifest, ItemId id, MutableByteSpan out,
                       std::stop_token stop);

  const OriginSettings settings_;
  const OriginContext context_;
  Guarded<std::shared_ptr<Origin>> origin_;
  Guarded<int> free_;
  std::atomic<std::uint64_t> body_bytes_ = 0;
};

}  // namespace quiver::cache
