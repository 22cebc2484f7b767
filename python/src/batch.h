// A batch as Python holds it, and what binding files need of it.
#pragma once

#include "cache/client/feed.h"
#include "core.h"

namespace quiver::py {

struct PyBatch {
  cache::BatchView view;
  std::shared_ptr<cache::FeedReader> reader;  // null: it was passed here too late
};

nb::object make_reader(std::shared_ptr<cache::FeedReader> reader);
// Samples that workers pass by reference are found by it, for as long as the feed lives.
void register_feed(const std::shared_ptr<cache::FeedReader>& reader);

}  // namespace quiver::py
