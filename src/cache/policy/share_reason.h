// Why a dataset has the share that it has, in words. Pure.
#pragma once

#include <string>

#include "cache/policy/cache_model.h"

namespace quiver::cache {

// One short sentence without a full stop: "bound by its own compute at 5 MB/s: more cache would
// change nothing". `forecast`: that of the division.
std::string share_reason(const Demands& demands, const Division& division, const Forecast& forecast,
                         std::size_t dataset);

}  // namespace quiver::cache
