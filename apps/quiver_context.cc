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
  return error(Code::kUnavailable, "no daemon is running for '{}'; one starts by itself with a job",
               address.cache_directory);
}

}  // namespace quiver
