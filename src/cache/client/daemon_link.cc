#include "cache/client/daemon_link.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/text.h"
#include "cache/client/cache_directory.h"
#include "io/process.h"
#include "io/socket.h"

namespace quiver::cache {
namespace {

constexpr std::size_t kLongestSocketPath = 107;
constexpr std::string_view kSoftware = "quiver-cache 0.1.0";
constexpr std::string_view kMarker = "quiver-cache";  // of a cache directory, as the store has it
constexpr Bytes kLogLimit = 16_MiB;
constexpr std::array<std::string_view, 11> kDaemonSettings = {
    "disk_limit",        "disk_floor", "memory_limit", "window",  "max_connections", "verify",
    "fetch_concurrency", "rate_limit", "log_level",    "metrics", "shares"};
// What a daemon is given of its starter's environment. Credentials, and proxies, whose addresses
// may hold some, belong to the session that brings them, not to the daemon that this user's jobs
// share.
constexpr auto kDaemonVariables = std::to_array<std::string_view>(
    {"HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "OPENSSL_CONF", "OPENSSL_MODULES",
     "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "TZ", "TZDIR", "USER", "GLIBC_TUNABLES",
     "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"});
constexpr auto kDaemonPrefixes =
    std::to_array<std::string_view>({"LC_", "MALLOC_", "QUIVER_", "XDG_"});
// A greeting costs the daemon nothing, so one that is well answers at once.
constexpr Duration kLongestGreeting = std::chrono::seconds(5);
constexpr Duration kLookEvery = std::chrono::milliseconds(500);
constexpr Bytes kStatLimit = 4_KiB;
constexpr Bytes kLeastSpace = 1_MiB;  // a daemon cannot begin with less

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
  const auto unusable = [](const Error& e) {
    const char* const cure = e.code == Code::kNoSpace
                                 ? "free some space, or set cache_dir to one on another disk"
                                 : "set cache_dir to one on a local disk that you may write";
    return error(e.code, "the cache directory cannot be used: {}; {}", e.message, cure);
  };
  if (const Status made = files.make_directories(path, 0700); !made) return unusable(made.error());
  // The daemon looks closer; here it is a matter of whose folder our log goes into.
  const auto info = files.stat(path);
  if (info && info->uid != ::geteuid()) {
    return error(Code::kDenied,
                 "the cache directory {} belongs to the user with uid {}, not to yours ({}): set "
                 "cache_dir to a directory of your own",
                 path, info->uid, ::geteuid());
  }
  const auto listed = files.list(path);
  if (!listed) return unusable(listed.error());
  const auto& entries = *listed;
  const bool marked = std::ranges::any_of(entries, [](const auto& e) { return e.name == kMarker; });
  if (marked) return {};
  if (!entries.empty()) {
    return error(Code::kInvalid,
                 "the directory {} is not empty and is no cache (it has no file {}): set cache_dir "
                 "to an empty or new one; nothing was touched",
                 path, kMarker);
  }
  const auto marker = files.open(fmt::format("{}/{}", path, kMarker), O_RDWR | O_CREAT, 0600);
  if (!marker) return unusable(marker.error());
  return {};
}

std::vector<std::pair<std::string, std::string>> daemon_environment() {
  std::vector<std::pair<std::string, std::string>> kept;
  for (const std::string& name : io::environment_names()) {
    const bool named =
        std::ranges::find(kDaemonVariables, name) != kDaemonVariables.end() ||
        std::ranges::any_of(kDaemonPrefixes, [&](const auto& p) { return name.starts_with(p); });
    if (named) kept.emplace_back(name, io::environment(name).value_or(""));
  }
  return kept;
}

Bytes size_of(io::Files& files, const std::string& path) {
  const auto info = files.stat(path);
  return info ? info->size : Bytes(0);
}

// Of what was written from `begin` on: what is before is another daemon's.
std::string last_line(io::Files& files, const std::string& path, Bytes begin) {
  auto text = io::read_file(files, path, kLogLimit);
  if (!text || text->size() <= begin.value) return "nothing was logged";
  text->erase(0, begin.value);
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

namespace {

// Whether the process cannot answer, however long one waits: stopped, traced, ended.
bool is_stopped(pid_t pid) {
  io::RealFiles files;
  const auto stat = io::read_file(files, fmt::format("/proc/{}/stat", pid), kStatLimit);
  if (!stat) return false;
  const auto name_end = stat->rfind(") ");
  return name_end != std::string::npos && name_end + 2 < stat->size() &&
         std::string_view("TtZX").find((*stat)[name_end + 2]) != std::string_view::npos;
}

// Why no daemon came up. On a full disk it could not even say so.
Error not_up(const DaemonAddress& address, io::Files& files, const std::string& log, Bytes begin) {
  const auto space = files.space(address.cache_directory);
  if (space && space->available < kLeastSpace) {
    return error(
        Code::kNoSpace,
        "there is no space left for the cache at {} ({} free): free some, or set cache_dir "
        "to a directory on another disk",
        address.cache_directory, format_bytes(space->available));
  }
  return error(Code::kUnavailable, "quiverd did not come up at {}: {} (more in {})", address.socket,
               last_line(files, log, begin), log);
}

Error silent(const DaemonAddress& address, pid_t pid) {
  if (is_stopped(pid)) {
    return error(Code::kTimeout,
                 "the daemon (pid {}) at {} does not answer, for its process is stopped: let it go "
                 "on with `kill -CONT {}`",
                 pid, address.socket, pid);
  }
  return error(Code::kTimeout,
               "the daemon (pid {}) at {} does not answer: wait until the machine is less busy, or "
               "end it with `kill -9 {}`, and a new one starts",
               pid, address.socket, pid);
}

Status check_ours(const DaemonAddress& address, const io::PeerCredentials& peer) {
  if (peer.uid == ::getuid()) return {};
  return error(Code::kDenied,
               "the daemon at {} runs under uid {}, not under yours ({}): name a socket of your "
               "own with `socket`, or another directory with `cache_dir`",
               address.socket, peer.uid, ::getuid());
}

// Tells which descriptor is a connection, as long as that is not known otherwise.
class Seen {
 public:
  Seen(std::atomic<int>* where, int fd) : where_(where) {
    if (where_ != nullptr) *where_ = fd;
  }
  ~Seen() {
    if (where_ != nullptr) *where_ = -1;
  }
  Seen(const Seen&) = delete;
  void keep() { where_ = nullptr; }

 private:
  std::atomic<int>* where_;
};

}  // namespace

Result<Greeted> greet_daemon(const DaemonAddress& address, const Token& session, Instant deadline,
                             std::atomic<int>* seen) {
  Greeted greeted;
  io::UnixSocket socket = TRY(io::UnixSocket::connect(address.socket, deadline));
  Seen seen_here(seen, socket.get());
  const io::PeerCredentials peer = TRY(socket.peer());
  if (Status ours = check_ours(address, peer); !ours) return std::move(ours).error();
  greeted.fd = socket.get();
  greeted.connection = std::make_unique<rpc::Connection>(std::move(socket));
  const HelloRequest hello{kProtocolVersion, std::string(kSoftware), session};
  const RealClock clock;  // a socket's deadlines are the kernel's
  const rpc::Patience patience{clock, kLookEvery, [&] { return !is_stopped(peer.pid); }};
  auto reply =
      greeted.connection->call(static_cast<std::uint16_t>(Request::kHello), encode(hello), {},
                               std::min(deadline, clock.now() + kLongestGreeting), &patience);
  if (!reply && reply.error().code == Code::kTimeout) return silent(address, peer.pid);
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
  seen_here.keep();
  return greeted;
}

Result<std::uint64_t> stop_daemon(const DaemonAddress& address, Instant deadline) {
  io::UnixSocket socket = TRY(io::UnixSocket::connect(address.socket, deadline));
  const io::PeerCredentials peer = TRY(socket.peer());
  if (Status ours = check_ours(address, peer); !ours) return std::move(ours).error();
  rpc::Connection connection(std::move(socket));
  const RealClock clock;
  const rpc::Patience patience{clock, kLookEvery, [&] { return !is_stopped(peer.pid); }};
  const auto reply = connection.call(static_cast<std::uint16_t>(Request::kStop), {}, {},
                                     std::min(deadline, clock.now() + kLongestGreeting), &patience);
  // The connection is still there, and so the pid is still the daemon's.
  if (!reply && (peer.pid <= 0 || ::kill(peer.pid, SIGTERM) < 0)) {
    return error(reply.error().code, "the daemon (pid {}) at {} cannot be stopped: {}", peer.pid,
                 address.socket, reply.error().message);
  }
  if (!reply && reply.error().code == Code::kTimeout) return silent(address, peer.pid);
  return static_cast<std::uint64_t>(peer.pid);
}

Result<Greeted> greet_or_start_daemon(const DaemonAddress& address, const std::string& program,
                                      const Settings& settings, Environment environment,
                                      Instant deadline, std::atomic<int>* seen) {
  auto greeted = greet_daemon(address, Token{}, deadline, seen);
  if (greeted || greeted.error().code != Code::kUnreachable || program.empty()) return greeted;

  const std::string log_path = address.cache_directory + "/quiverd.log";
  TRY(prepare_directory(environment.files, address.cache_directory));
  const Bytes log_begin = size_of(environment.files, log_path);
  const pid_t pid = TRY(io::spawn_detached(daemon_command(program, address, settings),
                                           daemon_environment(), log_path));
  // A daemon that lost the race for the directory ends at once, and the winner is about to listen.
  std::optional<Instant> gone_since;
  for (auto pause = std::chrono::milliseconds(2); environment.clock.now() < deadline;
       pause = std::min(pause * 2, std::chrono::milliseconds(50))) {
    std::this_thread::sleep_for(pause);
    greeted = greet_daemon(address, Token{}, deadline, seen);
    if (greeted || greeted.error().code == Code::kVersion ||
        greeted.error().code == Code::kDenied) {
      return greeted;
    }
    const bool gone = !environment.files.stat(fmt::format("/proc/{}", pid));
    if (gone && !gone_since) gone_since = environment.clock.now();
    if (gone_since && environment.clock.now() - *gone_since > std::chrono::seconds(2)) break;
  }
  return not_up(address, environment.files, log_path, log_begin);
}

}  // namespace quiver::cache
