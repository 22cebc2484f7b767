// A dataset that is digested while it is trained on: its manifest names items that nobody has read
// by where they lie, until they have passed.
#pragma once

#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/result.h"
#include "cache/manifest/manifest.h"
#include "cache/origin/origin.h"
#include "io/file.h"

namespace quiver::cache {

// The provisional manifest lies beside the one that it becomes: x.lazy.qvm and x.qvm.
std::string lazy_manifest_path(const std::string& path);
std::string complete_manifest_path(const std::string& lazy_path);

// Gives names to items that nobody has read. A name is of a place and a version, and private to the
// user and the credentials: it depends on a secret in the user's manifest folder, so that nobody
// else can say it.
class ProvisionalNames {
 public:
  static Result<ProvisionalNames> open(io::Files& files, const std::string& folder,
                                       const OriginSettings& origin);
  Sha256 name(std::string_view key, const ObjectVersion& version, std::uint64_t offset,
              Bytes length) const;

 private:
  explicit ProvisionalNames(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string prefix_;
};

}  // namespace quiver::cache
