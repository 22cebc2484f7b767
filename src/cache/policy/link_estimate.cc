#include "cache/policy/link_estimate.h"

#include <algorithm>
#include <vector>

namespace quiver::cache {

void LinkEstimate::second(Bytes transferred, bool full_load) {
  const double bytes = static_cast<double>(transferred.value);
  // What moved without full load is less than the link can do: it counts only where it is more than
  // was thought.
  const double known = rate();
  if (transferred.value == 0 || (!full_load && (known == 0 || bytes <= known))) return;
  seconds_.push_back(bytes);
  if (seconds_.size() > kKept) seconds_.pop_front();
}

double LinkEstimate::rate() const {
  if (seconds_.size() < kLeast) return 0;
  std::vector<double> sorted(seconds_.begin(), seconds_.end());
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() * 3 / 4);
  std::nth_element(sorted.begin(), at, sorted.end());
  return *at;
}

std::string link_of(std::string_view origin_url) {
  const auto scheme = origin_url.find("://");
  if (scheme == std::string_view::npos || origin_url.starts_with("file:")) return "file:";
  if (origin_url.starts_with("s3:")) return "s3:";
  return std::string(origin_url.substr(0, origin_url.find('/', scheme + 3)));
}

}  // namespace quiver::cache
