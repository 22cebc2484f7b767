// The daemon's figures as Prometheus reads them. All metrics are declared in metrics_text.cc.
#pragma once

#include <string>

namespace quiver::cache {

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

// `status`: the JSON of Control::status_json. No roots, hashes, keys or URLs: only public ids, and
// what jobs call themselves. Counters only rise while the daemon runs and a dataset stays open.
std::string metrics_text(const std::string& status);

}  // namespace quiver::cache
