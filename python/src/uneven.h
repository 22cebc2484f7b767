// Names of settings of the sampler, as Python spells them.
#pragma once

#include <string>

#include "cache/sampler/ranks.h"
#include "core.h"

namespace quiver::py {

cache::Uneven uneven_from(const std::string& text);

}  // namespace quiver::py
