#include "cache/origin/memory_origin.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "base/guarded.h"

namespace quiver::cache {

void MemoryOrigin::put(const std::string& key, std::string bytes) {
  objects_.with([&](Objects& o) {
    const std::string etag = fmt::format("\"{}\"", ++o.versions);
    const std::int64_t mtime = static_cast<std::int64_t>(o.versions) * 1'000'000'000;
    o.by_key[key] = {std::make_shared<const std::string>(std::move(bytes)), etag, mtime};
  });
}

void MemoryOrigin::remove(const std::string& key) {
  objects_.with([&](Objects& o) { o.by_key.erase(key); });
}

ListedObject MemoryOrigin::listed(const std::string& key, const Object& o) {
  return {key, {Bytes(o.bytes->size()), o.etag, o.mtime_ns}, sha256(as_bytes(*o.bytes))};
}

Status MemoryOrigin::list(const std::function<Status(ListedObject)>& each, std::stop_token stop) {
  ++lists_;
  const auto all = objects_.with([](const Objects& o) { return o.by_key; });
  for (const auto& [key, object] : all) {
    if (stop.stop_requested()) return error(Code::kCancelled, "the listing was cancelled");
    if (auto taken = each(listed(key, object)); !taken) return taken;
  }
  return {};
}

Result<MemoryOrigin::Object> MemoryOrigin::find(const std::string& key) const {
  return objects_.with([&](const Objects& o) -> Result<Object> {
    const auto at = o.by_key.find(key);
    if (at == o.by_key.end()) return error(Code::kNotFound, "memory:{}: no such object", key);
    return at->second;
  });
}

Result<ListedObject> MemoryOrigin::head(const std::string& key, std::stop_token) {
  ++heads_;
  const Object object = TRY(find(key));
  return listed(key, object);
}

Status MemoryOrigin::read(const ReadRequest& request, MutableByteSpan out, std::stop_token stop) {
  if (out.empty()) return {};
  if (auto sane = check_range(request, out.size()); !sane) return sane;
  if (stop.stop_requested()) return error(Code::kCancelled, "the read was cancelled");
  ++gets_;
  const Object object = TRY(find(request.key));
  const bool same = any_version(request.expected) || request.expected.etag == object.etag;
  if (!same) {
    return error(Code::kChanged, "memory:{}: the object has changed; digest the dataset again",
                 request.key);
  }
  const std::uint64_t size = object.bytes->size();
  if (request.offset > size || out.size() > size - request.offset) {
    return error(Code::kShort, "memory:{}: the object ends at byte {}", request.key, size);
  }
  std::memcpy(out.data(), object.bytes->data() + request.offset, out.size());
  body_bytes_ += out.size();
  return {};
}

OriginStats MemoryOrigin::stats() const {
  OriginStats stats;
  stats.lists = lists_;
  stats.heads = heads_;
  stats.gets = gets_;
  stats.body_bytes = Bytes(body_bytes_);
  return stats;
}

std::unique_ptr<Origin> make_memory_origin(
    std::vector<std::pair<std::string, std::string>> objects) {
  auto origin = std::make_unique<MemoryOrigin>();
  for (auto& [key, bytes] : objects) origin->put(key, std::move(bytes));
  return origin;
}

}  // namespace quiver::cache
