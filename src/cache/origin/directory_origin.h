// Files below a directory: local, NFS, Lustre. See origin.h.
#pragma once

#include "cache/origin/origin.h"

namespace quiver::cache {

// `path` is absolute; settings.url is what url() returns.
Result<std::unique_ptr<Origin>> make_directory_origin(const OriginSettings& settings,
                                                      std::string path, OriginContext context);

}  // namespace quiver::cache
