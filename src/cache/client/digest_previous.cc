#include "cache/client/digest_previous.h"

#include <algorithm>
#include <functional>

namespace quiver::cache {

PreviousDigest PreviousDigest::open(io::Files& files, const std::string& path,
                                    std::string_view url) {
  PreviousDigest previous;
  const auto info = files.stat(path);
  if (!info) return previous;
  const auto manifest = Manifest::open(files, path, true);
  if (!manifest || (*manifest)->origin_url() != url) return previous;
  previous.manifest_ = *manifest;
  previous.written_ns_ = info->mtime_ns;
  previous.by_key_.reserve(previous.size());
  for (std::uint32_t i = 0; i < previous.size(); ++i) {
    const std::string_view key = previous.manifest_->item(ItemId(i)).key;
    previous.by_key_.push_back({std::hash<std::string_view>{}(key), ItemId(i)});
  }
  std::ranges::sort(previous.by_key_, {}, &Entry::hash);
  return previous;
}

std::optional<Item> PreviousDigest::find(std::string_view key) const {
  const auto same =
      std::ranges::equal_range(by_key_, std::hash<std::string_view>{}(key), {}, &Entry::hash);
  for (const Entry& entry : same) {
    const Item item = manifest_->item(entry.item);
    if (item.key == key) return item;
  }
  return std::nullopt;
}

std::optional<Sha256> PreviousDigest::unchanged(std::string_view key,
                                                const ObjectVersion& version) const {
  const auto item = find(key);
  if (!item) return std::nullopt;
  const ObjectRef then = manifest_->object(item->object);
  const bool whole = item->offset == 0 && item->length == then.size && then.key == key;
  return whole && is_still(then, version) ? std::optional(*item->hash) : std::nullopt;
}

bool PreviousDigest::is_still(const ObjectRef& then, const ObjectVersion& version) const {
  if (then.size != version.size) return false;
  if (!version.etag.empty() || !then.etag.empty()) {
    return !version.etag.starts_with("W/") && version.etag == then.etag;
  }
  const bool old = version.mtime_ns != 0 && version.mtime_ns < written_ns_ - kMtimeTickNs;
  return old && version.mtime_ns == then.mtime_ns;
}

}  // namespace quiver::cache
