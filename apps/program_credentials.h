// Credentials that a command of `quiver` reads with, renewed while it runs.
#pragma once

#include <memory>
#include <string>

#include "quiver_commands.h"

namespace quiver {

// Owned by one command, which lets it look now and then from one thread; who waits for others
// meanwhile does so on another one.
class ProgramCredentials {
 public:
  // `first` is what user_origin() gave for the URL.
  ProgramCredentials(const Command& command, std::string url, const cache::OriginSettings& first);

  const std::shared_ptr<cache::RenewableCredentials>& shared() const { return shared_; }
  // Finds them anew, from where they came, when they are about to expire or have been refused.
  // True: there are others. What cannot be renewed is warned of, and serves as long as it does.
  bool look();

 private:
  const Command& command_;
  const std::string url_;
  std::optional<WallTime> expires_;
  const std::shared_ptr<cache::RenewableCredentials> shared_;
  Instant next_{};
};

}  // namespace quiver
