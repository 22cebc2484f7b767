// Objects in memory: the reference that the other origins are compared with, and what tests of
// other modules change by hand.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "base/guarded.h"
#include "cache/origin/origin.h"
#include "cache/origin/ranged_read.h"

namespace quiver::cache {

// Owns its objects. Any thread may call anything; a read sees one version or fails.
class MemoryOrigin final : public Origin {
 public:
  void put(const std::string& key, std::string bytes);  // a new version each time
  void remove(const std::string& key);

  Status list(const std::function<Status(ListedObject)>& each, std::stop_token stop) override;
  Result<ListedObject> head(const std::string& key, std::stop_token stop) override;
  Status read(const ReadRequest& request, MutableByteSpan out, std::stop_token stop) override;
  OriginStats stats() const override;
  std::string url() const override { return "memory:"; }

 private:
  struct Object {
    std::shared_ptr<const std::string> bytes;
    std::string etag;
    std::int64_t mtime_ns;
  };
  struct Objects {
    std::map<std::string, Object> by_key;
    std::uint64_t versions = 0;
  };
  static ListedObject listed(const std::string& key, const Object& o);
  Result<Object> find(const std::string& key) const;

  Guarded<Objects> objects_;
  std::atomic<std::uint64_t> lists_{0}, heads_{0}, gets_{0}, body_bytes_{0};
};

}  // namespace quiver::cache
