#include "cache/client/daemon_link.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "cache/client/cache_directory.h"
#include "io/process.h"
#include "io/socket.h"

namespace quiver::cache {
namespace {

constexpr std::size_t kLongestSocketPath = 107;
constexpr std::string_view kSoftware = "quiver-cache 0.1.0";
constexpr std::string_view kMarker = "quiver-cache";  // of a cache directory, as the store has it
constexpr Bytes kLogLimit = 16_MiB;
constexpr std::array<std::string_view, 8> kDaemonSettings = {
    "disk_limit", "disk_floor",        "memory_limit", "window",
    "verify",     "fetch_concurrency", "rate_limit",   "log_level"};

Error other_version(const DaemonAddress& address, std::uint32_t protocol,
                    const std::string& software) {
  return error(Code::kVersion,
               "the daemon at {} is {} with protocol {}, this process is {} with protocol {}: stop "
               "it with `quiver stop`, and install the same version of quiver-cache everywhere",
               address.socket, software, protocol, kSoftware, kProtocolVersion);
}

// The daemon's output goes into the directory before the daemon has made it its own, so a new one
// gets the (empty) marker here; one that holds something else is not touched.
Status prepare_directory(io::Files& files, const std::string& path) {
  TRY(files.make_directories(path, 0700));
  const auto entries = TRY(files.list(path));
  const bool marked = std::ranges::any_of(entries, [](const auto& e) { return e.name == kMarker; });
  if (marked) return {};
  if (!entries.empty()) {
    return error(Code::kInvalid,
                 "the directory {} is not empty and is no cache (it has no file {}): set cache_dir "
                 "to an empty or new one; nothing was touched",
                 path, kMarker);
  }
  TRY(files.open(fmt::format("{}/{}", path, kMarker), O_RDWR | O_CREAT, 0600));
  return {};
}

std::string last_line(io::Files& files, const std::string& path) {
  auto text = io::read_file(files, path, kLogLimit);
  if (!text) return "nothing was logged";
  while (text->ends_with('\n')) text->pop_back();
  const auto at = text->rfind('\n');
  return at == std::string::npos ? *text : text->substr(at + 1);
}

}  // namespace

Result<DaemonAddress> daemon_address(const Settings& settings, io::Files& files,
                                     const Getenv& environment) {
  DaemonAddress address;
  address.cache_directory = TRY(choose_cache_directory(settings, files, environment));
  address.socket =
      settings.socket.empty() ? address.cache_directory + "/quiverd.sock" : settings.socket;
  if (address.socket.size() > kLongestSocketPath) {
    return error(Code::kInvalid,
                 "the socket path {} is longer than {} bytes: set `socket` to a shorter one",
                 address.socket, kLongestSocketPath);
  }
  return address;
}

std::vector<std::string> daemon_command(const std::string& program, const DaemonAddress& address,
                                        const Settings& settings) {
  std::vector<std::string> command = {program, "--cache-dir", address.cache_directory, "--socket",
                                      address.socket};
  for (const auto& field : settings_fields()) {
    if (std::ranges::find(kDaemonSettings, field.info.name) == kDaemonSettings.end()) continue;
    std::string value = field.get(settings);
    if (value.empty() || value == field.info.default_text) continue;
    std::string option = fmt::format("--{}", field.info.name);
    std::ranges::replace(option, '_', '-');
    command.push_back(std::move(option));
    command.push_back(std::move(value));
  }
  command.push_back("--idle-timeout");
  command.push_back(fmt::format("{}", settings.idle_timeout.count()));
  return command;
}

Result<Greeted> greet_daemon(const DaemonAddress& address, const Token& session, Instant deadline) {
  io::UnixSocket socket = TRY(io::UnixSocket::connect(address.socket, deadline));
  const io::PeerCredentials peer = TRY(socket.peer());
  if (peer.uid != ::getuid()) {
    return error(Code::kDenied,
                 "the daemon at {} runs under uid {}, not under yours ({}): name a socket of your "
                 "own with `socket`, or another directory with `cache_dir`",
                 address.socket, peer.uid, ::getuid());
  }
  Greeted greeted;
  greeted.fd = socket.get();
  greeted.connection = std::make_unique<rpc::Connection>(std::move(socket));
  const HelloRequest hello{kProtocolVersion, std::string(kSoftware), session};
  auto reply = greeted.connection->call(static_cast<std::uint16_t>(Request::kHello), encode(hello),
                                        {}, deadline);
  if (!reply && reply.error().code == Code::kVersion) {
    return std::move(reply).error().context(
        fmt::format("the daemon at {} and this process ({}, protocol {}) do not fit together; stop "
                    "it with `quiver stop`, and install the same version everywhere",
                    address.socket, kSoftware, kProtocolVersion));
  }
  const rpc::Message message = TRY(std::move(reply));
  greeted.hello = TRY(decode<HelloReply>(message.payload));
  if (greeted.hello.protocol != kProtocolVersion) {
    return other_version(address, greeted.hello.protocol, greeted.hello.software);
  }
  return greeted;
}

Result<Greeted> greet_or_start_daemon(const DaemonAddress& address, const std::string& program,
                                      const Settings& settings, Environment environment,
                                      Instant deadline) {
  auto greeted = greet_daemon(address, Token{}, deadline);
  if (greeted || greeted.error().code != Code::kUnreachable || program.empty()) return greeted;

  const std::string log_path = address.cache_directory + "/quiverd.log";
  TRY(prepare_directory(environment.files, address.cache_directory));
  const pid_t pid =
      TRY(io::spawn_detached(daemon_command(program, address, settings), {}, log_path));
  // A daemon that lost the race for the directory ends at once, and the winner is about to listen.
  std::optional<Instant> gone_since;
  for (auto pause = std::chrono::milliseconds(2); environment.clock.now() < deadline;
       pause = std::min(pause * 2, std::chrono::milliseconds(50))) {
    std::this_thread::sleep_for(pause);
    greeted = greet_daemon(address, Token{}, deadline);
    if (greeted || greeted.error().code == Code::kVersion ||
        greeted.error().code == Code::kDenied) {
      return greeted;
    }
    const bool gone = !environment.files.stat(fmt::format("/proc/{}", pid));
    if (gone && !gone_since) gone_since = environment.clock.now();
    if (gone_since && environment.clock.now() - *gone_since > std::chrono::seconds(2)) break;
  }
  return error(Code::kUnavailable, "quiverd did not come up at {}: {} (more in {})", address.socket,
               last_line(environment.files, log_path), log_path);
}

}  // namespace quiver::cache
