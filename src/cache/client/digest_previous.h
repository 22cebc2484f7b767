// PreviousDigest: the manifest that a digest is about to replace. What has not changed since then
// keeps its hash without being read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/manifest/manifest.h"

namespace quiver::cache {

// Owns the manifest and an index of its keys. Immutable after opening. Nothing of it is an error:
// a manifest that is missing, damaged or of another address is as none.
class PreviousDigest {
 public:
  static PreviousDigest open(io::Files& files, const std::string& path, std::string_view url);

  bool exists() const { return manifest_ != nullptr; }
  std::uint32_t size() const { return manifest_ ? manifest_->size() : 0; }
  std::optional<Item> find(std::string_view key) const;
  // Its hash, if the object is still the one that was hashed: by its ETag, where that is strong;
  // else by size and mtime, if the mtime was old enough then to tell a later write from it.
  std::optional<Sha256> unchanged(std::string_view key, const ObjectVersion& version) const;
  // The same of any object that it has.
  bool is_still(const ObjectRef& then, const ObjectVersion& version) const;
  const Manifest* manifest() const { return manifest_.get(); }

 private:
  struct Entry {
    std::size_t hash;  // of the key
    ItemId item;
  };
  std::shared_ptr<const Manifest> manifest_;
  std::int64_t written_ns_ = 0;
  std::vector<Entry> by_key_;  // ordered by hash
};

// A write within so long after another may leave the same mtime: file systems' clocks are coarse.
inline constexpr std::int64_t kMtimeTickNs = 2'000'000'000;

}  // namespace quiver::cache
