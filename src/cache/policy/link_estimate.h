// What a link gives, from transfers at full load. Pure.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "base/units.h"

namespace quiver::cache {

// Fed once a second for a link that is used. A second counts when it was at full load: when fetches
// waited for the link all the time. Of the last 16 of these the rate is the upper quartile: a
// second that was not full after all, and a burst, do not move it; a link that becomes faster is
// seen after about four seconds at full load, one that becomes slower after about twelve. While the
// link is not at full load what it gives is not known, and the last estimate stays.
class LinkEstimate {
 public:
  static constexpr std::size_t kKept = 16, kLeast = 3;

  void second(Bytes transferred, bool full_load);
  double rate() const;  // bytes/s; 0: not known yet

 private:
  std::deque<double> seconds_;
};

// The link over which an origin is reached, by its URL: its server with scheme and port; one for
// all of S3, and one for all directories.
std::string link_of(std::string_view origin_url);

}  // namespace quiver::cache
