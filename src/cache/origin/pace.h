// How fast each server is asked, over everything in this process that reads from it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/guarded.h"
#include "cache/origin/rate_limit.h"
#include "cache/origin/request_window.h"

namespace quiver::cache {

struct OriginPace {
  explicit OriginPace(Clock& clock) : bytes(clock), requests(clock) {}
  RateLimit bytes;
  RequestWindow requests;
};

// Keeps one pace per server for as long as an origin holds it; borrows the clock. Any thread may
// call. Origins of different sessions, credentials and folders meet here, so a root names only the
// server: scheme, host and port; for S3 endpoint and bucket; one for all directories.
class OriginPaces {
 public:
  explicit OriginPaces(Clock& clock) : clock_(clock) {}

  std::shared_ptr<OriginPace> of(const std::string& root) {
    return paces_.with([&](auto& paces) {
      std::erase_if(paces, [](const auto& entry) { return entry.second.expired(); });
      auto pace = paces[root].lock();
      if (!pace) paces[root] = pace = std::make_shared<OriginPace>(clock_);
      return pace;
    });
  }

 private:
  Clock& clock_;
  Guarded<std::map<std::string, std::weak_ptr<OriginPace>>> paces_;
};

// The pace of `root` in the context: shared where it has paces, else the caller's own.
inline std::shared_ptr<OriginPace> pace_of(const OriginContext& context, const std::string& root) {
  return context.paces ? context.paces->of(root) : std::make_shared<OriginPace>(context.clock);
}

}  // namespace quiver::cache
