// What `quiver plan --running` is given: the jobs over a cache, as its daemon measures them. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "plan_file.h"

namespace quiver {

// `status`: what the daemon says of itself. Rates that it does not know yet are 0. kNotFound: no
// job runs.
Result<Plan> running_plan(const nlohmann::json& status, std::vector<Bytes> caches);

}  // namespace quiver
