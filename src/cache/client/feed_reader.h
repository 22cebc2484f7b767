// The reader of a feed over an arena that is mapped already.
#pragma once

#include <memory>

#include "cache/client/arena.h"
#include "cache/client/feed.h"

namespace quiver::cache {

std::shared_ptr<FeedReader> make_feed_reader(std::shared_ptr<const Arena> arena);

}  // namespace quiver::cache
