#include <filesystem>

#include "cache/client/digest.h"
#include "cache/client/user_settings.h"
#include "io/process.h"
#include "quiver_commands.h"

namespace quiver {

Result<cache::Greeted> daemon_of(const Command& command, bool start) {
  const auto& env = command.environment;
  const auto address = TRY(cache::daemon_address(command.settings, env.files, io::environment));
  const Instant deadline = env.clock.now() + std::chrono::seconds(10);
  if (start && !command.daemon_program.empty()) {
    return cache::greet_or_start_daemon(address, command.daemon_program, command.settings, env,
                                        deadline);
  }
  auto daemon = cache::greet_daemon(address, cache::Token{}, deadline);
  if (daemon || daemon.error().code != Code::kUnreachable) return daemon;
  return no_daemon(address);
}

Error no_daemon(const cache::DaemonAddress& address) {
  return error(
      Code::kUnavailable,
      "no daemon is running for '{}'; one starts by itself with a job, or with 'quiver warm'",
      address.cache_directory);
}

std::string address_of(const std::string& written) {
  if (written.empty() || written.starts_with('/') || written.find("://") != std::string::npos) {
    return written;
  }
  std::error_code failed;
  const auto folder = std::filesystem::current_path(failed);
  if (failed) return written;
  std::string path = (folder / written).lexically_normal();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Result<std::shared_ptr<const cache::Manifest>> manifest_of(const Command& command,
                                                           const std::string& target) {
  io::Files& files = command.environment.files;
  if (target.ends_with(".qvm")) {
    auto manifest = cache::Manifest::open(files, target, true);
    if (manifest || manifest.error().code != Code::kNotFound) return manifest;
    return error(Code::kNotFound,
                 "there is no manifest '{}'; make it with 'quiver digest --manifest {} ADDRESS'",
                 target, target);
  }
  const auto origin = TRY(cache::user_origin(address_of(target), command.settings, {}, files));
  for (const auto layout :
       {cache::Layout::kImageFolder, cache::Layout::kFiles, cache::Layout::kWebDataset}) {
    const std::string path = cache::manifest_path_for(command.settings, origin, layout);
    if (files.stat(path)) return cache::Manifest::open(files, path, true);
  }
  return error(Code::kNotFound, "'{}' has no manifest yet; make one with 'quiver digest {}'",
               target, target);
}

}  // namespace quiver
