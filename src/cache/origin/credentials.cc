#include "cache/origin/credentials.h"

namespace quiver::cache {
namespace {

constexpr std::chrono::seconds kLongestRenewal{30};  // a provider may ask a server, and retry

}  // namespace

RenewableCredentials::RenewableCredentials(Credentials first) {
  state_.with([&](State& s) {
    s.all.push_back(std::make_unique<const Now>(Now{std::move(first), 0}));
    now_ = s.all.back().get();
  });
}

bool RenewableCredentials::newer_than(std::uint64_t version, std::stop_token stop) {
  const std::uint64_t answers = state_.change([&](State& s) {
    s.asked = s.asked || now().version <= version;
    return s.answers;
  });
  state_.wait_for(
      stop, kLongestRenewal,
      [&](const State& s) { return !s.renewed || now().version > version || s.answers != answers; },
      [](const State&) {});
  return now().version > version;
}

void RenewableCredentials::renewed_by_somebody(bool is) {
  state_.change([&](State& s) { s.renewed = is; });
}

bool RenewableCredentials::wanted(std::chrono::milliseconds patience) {
  bool asked = false;
  state_.wait_for(
      std::stop_token{}, patience, [](const State& s) { return s.asked || !s.renewed; },
      [&](const State& s) { asked = s.asked && s.renewed; });
  return asked;
}

void RenewableCredentials::renew(Credentials keys) {
  state_.change([&](State& s) {
    ++s.answers;
    s.asked = false;
    if (keys == now().keys) return;
    s.all.push_back(std::make_unique<const Now>(Now{std::move(keys), now().version + 1}));
    now_.store(s.all.back().get(), std::memory_order_release);
  });
}

}  // namespace quiver::cache
