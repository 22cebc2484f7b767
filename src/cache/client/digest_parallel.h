// What a digest does for many objects at once.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>

#include "base/result.h"

namespace quiver::cache {

// Each index below `count`, in order, on as many threads. `scratch` is the thread's own memory. The
// first error stops the rest and is returned; so does a stop (kCancelled). `tick` is called from
// this thread, at most ten times a second and once at the end.
Status in_parallel(
    std::size_t count, int threads,
    const std::function<Status(std::size_t, std::string& scratch, std::stop_token)>& each,
    const std::function<void()>& tick, std::stop_token stop);

}  // namespace quiver::cache
