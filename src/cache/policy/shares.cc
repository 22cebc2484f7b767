#include "cache/policy/shares.h"

#include <algorithm>
#include <numeric>

namespace quiver::cache {

std::vector<Bytes> divide_shares(Bytes budget, const std::vector<ShareRequest>& requests) {
  std::vector<Bytes> shares(requests.size());
  std::vector<std::size_t> live, idle;
  for (std::size_t i = 0; i < requests.size(); ++i) (requests[i].live ? live : idle).push_back(i);

  // Smallest need first: what it leaves raises the equal part of those that follow.
  std::sort(live.begin(), live.end(),
            [&](auto a, auto b) { return requests[a].need < requests[b].need; });
  for (std::size_t k = 0; k < live.size(); ++k) {
    const Bytes equal = budget / (live.size() - k);
    shares[live[k]] = std::min(equal, requests[live[k]].need);
    budget -= shares[live[k]];
  }
  std::sort(idle.begin(), idle.end(),
            [&](auto a, auto b) { return requests[a].last_used > requests[b].last_used; });
  for (const std::size_t i : idle) {
    shares[i] = std::min(budget, requests[i].held);
    budget -= shares[i];
  }
  return shares;
}

}  // namespace quiver::cache
