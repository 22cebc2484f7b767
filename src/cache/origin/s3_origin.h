// Objects of an S3 bucket. See origin.h.
#pragma once

#include "cache/origin/origin.h"

namespace quiver::cache {

Result<std::unique_ptr<Origin>> make_s3_origin(const OriginSettings& settings,
                                               OriginContext context);

}  // namespace quiver::cache
