// The commands of `quiver`: each prints its result and returns a Status; main() does the rest.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <stop_token>
#include <string>

#include "base/log.h"
#include "base/quiver_settings.h"
#include "base/result.h"
#include "cache/client/daemon_link.h"
#include "cache/client/dataset.h"
#include "plan_file.h"

namespace quiver {

struct Command {
  cache::Environment environment;
  Settings settings;
  bool json = false;
  std::string daemon_program;  // quiverd beside this program; empty: there is none
  std::stop_token stop;
};

struct DigestArguments {
  std::string url, layout = "image_folder", manifest;
  bool fresh = false, allow_empty = false;
};

// The exit status is that of success (0) unless it says otherwise.
Result<int> run_status(const Command& command);
// Each second until it is interrupted on a terminal and with --json; else, and with `once`, once.
Result<int> run_top(const Command& command, bool once);
Result<int> run_digest(const Command& command, const DigestArguments& arguments);
// `verify`: all of it must be here, and is read to be sure.
Result<int> run_warm(const Command& command, const std::string& target, bool verify);
Result<int> run_evict(const Command& command, const std::string& target, bool all);
Result<int> run_plan(const Command& command, const PlanArguments& arguments);
Result<int> run_stop(const Command& command);
Result<int> run_explain(const Command& command);

// An address as it was written: a path may be relative to the working directory.
std::string address_of(const std::string& written);

// A manifest's path, or the URL of which one was made.
Result<std::shared_ptr<const cache::Manifest>> manifest_of(const Command& command,
                                                           const std::string& target);

// kUnavailable, as a sentence, when no daemon runs; `start`: start one then.
Result<cache::Greeted> daemon_of(const Command& command, bool start);
Error no_daemon(const cache::DaemonAddress& address);

// What the daemon says of itself, with at least disk, memory, datasets and unclaimed.
Result<nlohmann::json> status_of(const Command& command, cache::Greeted& daemon,
                                 Duration patience = std::chrono::minutes(1));

// What --json says of a failure, as the value of "error".
nlohmann::json error_json(const Error& failure);

template <class R, class M>
Result<R> ask_daemon(cache::Greeted& daemon, cache::Request type, const M& message,
                     const Clock& clock, std::span<const int> fds = {},
                     Duration patience = std::chrono::minutes(1)) {
  auto reply = daemon.connection->call(static_cast<std::uint16_t>(type), cache::encode(message),
                                       fds, clock.now() + patience);
  if (!reply) return std::move(reply).error();
  return cache::decode<R>(reply->payload);
}

}  // namespace quiver
