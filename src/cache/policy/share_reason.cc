#include "cache/policy/share_reason.h"

#include <algorithm>

#include "base/result.h"
#include "base/text.h"

namespace quiver::cache {

namespace {

std::string rate_text(double bytes_per_second) {
  return format_bytes(Bytes(static_cast<std::uint64_t>(bytes_per_second))) + "/s";
}

}  // namespace

std::string share_reason(const Demands& demands, const Division& division, const Forecast& forecast,
                         std::size_t dataset) {
  const DatasetDemand& demand = demands.datasets[dataset];
  const DatasetForecast& its = forecast.datasets[dataset];
  bool read = false;
  double fastest = 0;
  for (const JobDemand& job : demands.jobs) {
    if (job.dataset != dataset) continue;
    read = true;
    fastest = std::max(fastest, job.rate);
  }
  if (!read) return "no job reads it";
  if (its.missing == 0) return "all of it fits";
  const double link = demands.links[demand.link];
  const bool known = fastest > 0 && link > 0;
  if (known && its.fed >= fastest) {
    return fmt::format("bound by its own compute at {}: more cache would change nothing",
                       rate_text(fastest));
  }
  if (division[dataset] == demand.limit) {
    return fmt::format("at its limit of {}", format_bytes(demand.limit));
  }
  if (fastest == 0) return "its compute rate is not known yet: it has an equal part";
  if (link == 0) return "what its link gives is not known yet: it has an equal part";
  // At the level of the link as it is: a little less than that is enough.
  const double level = its.fed * its.missing;
  const double more = (its.missing - level / fastest) * static_cast<double>(demand.need.value);
  return fmt::format(
      "bound by the link: fed at {} where it could compute {}; {} more cache would feed it in "
      "full{}",
      rate_text(its.fed), rate_text(fastest), format_bytes(Bytes(static_cast<std::uint64_t>(more))),
      demands.datasets.size() > 1 ? ", but they gain more elsewhere" : "");
}

}  // namespace quiver::cache
