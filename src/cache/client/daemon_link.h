// The way to the node's daemon: where it listens, how it is started, how it is greeted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/quiver_settings.h"
#include "cache/client/dataset.h"
#include "cache/client/protocol.h"
#include "rpc/connection.h"

namespace quiver::cache {

struct DaemonAddress {
  std::string cache_directory, socket;
};
// settings.socket, else quiverd.sock in the cache directory. kInvalid for a path too long for a
// socket (107 bytes).
Result<DaemonAddress> daemon_address(const Settings& settings, io::Files& files,
                                     const Getenv& environment);

// The command line of a daemon with these settings; those that are at their default are left out.
std::vector<std::string> daemon_command(const std::string& program, const DaemonAddress& address,
                                        const Settings& settings);

struct Greeted {
  std::unique_ptr<rpc::Connection> connection;
  HelloReply hello;
  int fd = -1;  // of the connection, borrowed: a fork's child closes its copy
};
// Connects, checks that the daemon is our own user's, greets. A zero `session` opens one.
// kUnreachable: nobody listens. kVersion, naming both versions and the cure. kDenied: not ours.
Result<Greeted> greet_daemon(const DaemonAddress& address, const Token& session, Instant deadline);

// The same; where nobody listens, starts `program` (unless it is empty) and waits for it. Any
// number of processes may do so at once: the daemons settle by the lock of the directory who stays,
// and every client reaches that one. An error tells the last line that the daemon wrote.
Result<Greeted> greet_or_start_daemon(const DaemonAddress& address, const std::string& program,
                                      const Settings& settings, Environment environment,
                                      Instant deadline);

}  // namespace quiver::cache
