// The settings of the user and the way to an origin, as the bindings share them.
#pragma once

#include "cache/client/user_settings.h"
#include "core.h"

namespace quiver::py {

using cache::Credentials;

}  // namespace quiver::py
