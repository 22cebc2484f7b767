// The credentials of an S3 origin, which may be renewed while requests are made with them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/guarded.h"

namespace quiver::cache {

// All empty: anonymous. They live in memory, and nowhere else.
struct Credentials {
  std::string access_key, secret_key, session_token;
  bool operator==(const Credentials&) const = default;
};

// Owned by those who make requests and who renews their credentials, if anybody does. Any thread
// may call anything; now() takes no lock, so that a fork's child may still ask for it, and nothing
// else. What now() returned lives as long as the object. Nobody waits without a limit: what does
// not come is an origin's kExpired.
class RenewableCredentials {
 public:
  struct Now {
    Credentials keys;
    std::uint64_t version = 0;  // rises with each renewal
  };
  explicit RenewableCredentials(Credentials first);

  const Now& now() const { return *now_.load(std::memory_order_acquire); }
  // Those of `version` were refused as expired: asks for others, and waits for them while somebody
  // renews. True: there are newer ones.
  bool newer_than(std::uint64_t version, std::stop_token stop);

  // Who renews says so, waits until somebody asks (true) or the time is over, and answers. An
  // answer with the same credentials is a refusal: whoever waits gives up.
  void renewed_by_somebody(bool is);
  bool wanted(std::chrono::milliseconds patience);
  void renew(Credentials keys);

 private:
  struct State {
    std::vector<std::unique_ptr<const Now>> all;  // the last one is now
    bool renewed = false;                         // by somebody
    bool asked = false;
    std::uint64_t answers = 0;
  };
  Guarded<State> state_;
  std::atomic<const Now*> now_;
};

}  // namespace quiver::cache
