#include "program_credentials.h"

#include "cache/client/user_settings.h"

namespace quiver {
namespace {

constexpr std::chrono::minutes kAhead{5};
constexpr std::chrono::seconds kAgain{30};  // and no oftener, unless they were refused

}  // namespace

ProgramCredentials::ProgramCredentials(const Command& command, std::string url,
                                       const cache::OriginSettings& first)
    : command_(command),
      url_(std::move(url)),
      expires_(first.expires),
      shared_(std::make_shared<cache::RenewableCredentials>(first.credentials())) {
  shared_->renewed_by_somebody(expires_.has_value());
}

bool ProgramCredentials::look() {
  const auto& [files, http, clock, sink] = command_.environment;
  if (!expires_) return false;
  const bool refused = shared_->wanted(std::chrono::milliseconds(0));
  const bool near = clock.wall() + kAhead > *expires_ && clock.now() >= next_;
  if (!refused && !near) return false;
  next_ = clock.now() + kAgain;
  const std::uint64_t before = shared_->now().version;
  auto again = cache::user_origin(url_, command_.settings, {}, files);
  if (again) {
    expires_ = again->expires;
  } else {
    log(sink, LogLevel::kWarning, "the credentials cannot be renewed: {}", again.error().message);
  }
  shared_->renew(again ? again->credentials() : shared_->now().keys);
  return shared_->now().version != before;
}

}  // namespace quiver
