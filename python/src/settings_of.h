// The settings of the user and the way to an origin, as the bindings share them.
#pragma once

#include "cache/client/user_settings.h"
#include "core.h"

namespace quiver::py {

using cache::Credentials;

// What Python holds as `Credentials`: shared with the origins that read with them.
struct PyCredentials {
  OwnedHere<std::shared_ptr<cache::RenewableCredentials>> handle;

  Credentials now() const { return (*handle)->now().keys; }
  // Null where there are none: then those of the environment count, which do not change.
  std::shared_ptr<cache::RenewableCredentials> shared() const {
    return now().access_key.empty() ? nullptr : *handle;
  }
};

}  // namespace quiver::py
