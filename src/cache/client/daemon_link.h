// The way to the node's daemon: where it listens, how it is started, how it is greeted.
#pragma once

#include <atomic>
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
// Connects, checks that the daemon is our own user's, greets. A zero `session` opens one. Waits 5 s
// at most, and 1 s for a process that is stopped. kUnreachable: nobody listens. kVersion, naming
// both versions and the cure. kDenied: not ours. kTimeout: it does not answer; its pid and what to
// do. `seen` has the connection's descriptor from its first moment on, and -1 when it failed.
Result<Greeted> greet_daemon(const DaemonAddress& address, const Token& session, Instant deadline,
                             std::atomic<int>* seen = nullptr);

// The same; where nobody listens, starts `program` (unless it is empty) and waits for it. Any
// number of processes may do so at once: the daemons settle by the lock of the directory who stays,
// and every client reaches that one. It gets few of our variables, and no credentials. An error
// tells the last line that the daemon wrote, or that there is no space.
Result<Greeted> greet_or_start_daemon(const DaemonAddress& address, const std::string& program,
                                      const Settings& settings, Environment environment,
                                      Instant deadline, std::atomic<int>* seen = nullptr);

// Tells our user's daemon to stop, whatever its version: by a message, or by SIGTERM where it does
// not understand that. Returns its pid; it may take a while to end. kUnreachable: nobody listens.
Result<std::uint64_t> stop_daemon(const DaemonAddress& address, Instant deadline);

}  // namespace quiver::cache
