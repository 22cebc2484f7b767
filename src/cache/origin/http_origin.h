// Objects behind a plain web server. See origin.h.
#pragma once

#include "cache/origin/origin.h"

namespace quiver::cache {

Result<std::unique_ptr<Origin>> make_http_origin(const OriginSettings& settings,
                                                 OriginContext context);

}  // namespace quiver::cache
