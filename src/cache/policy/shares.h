// How a node's disk budget divides between datasets. Pure, and replaceable: nothing else knows the
// rule.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"

namespace quiver::cache {

struct ShareRequest {
  Bytes need{};                 // what all of it would occupy
  Bytes held{};                 // what it occupies now
  bool live = false;            // has a session
  std::uint64_t last_used = 0;  // larger is later
};

// Live datasets divide the budget equally, and what one of them cannot use flows to the others.
// What they all leave is kept by the others as far as they hold it, most recently used first.
std::vector<Bytes> divide_shares(Bytes budget, const std::vector<ShareRequest>& requests);

}  // namespace quiver::cache
