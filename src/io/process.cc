#include "io/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "io/file.h"

extern char** environ;

namespace quiver::io {
namespace {

Result<std::string> find_program(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::string_view rest =
      name.find('/') != std::string::npos ? "" : std::string_view("/usr/bin:/bin");
  const auto path = environment("PATH");
  if (!rest.empty() && path) rest = *path;
  if (rest.empty()) {
    const std::string absolute = fs::absolute(name, ignored).string();
    if (::access(absolute.c_str(), X_OK) == 0) return absolute;
    return os_error(errno, fmt::format("starting {}", name));
  }
  while (!rest.empty()) {
    const auto colon = std::min(rest.find(':'), rest.size());
    const fs::path candidate = fs::absolute(fs::path(rest.substr(0, colon)) / name, ignored);
    if (fs::is_regular_file(candidate, ignored) && ::access(candidate.c_str(), X_OK) == 0) {
      return candidate.string();
    }
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return error(Code::kNotFound, "starting {}: there is no such program in PATH", name);
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

// Everything that the new process needs, made before fork(): after it, in a process with threads,
// only async-signal-safe calls are allowed.
struct Launch {
  const char* program;
  char* const* argv;
  char* const* envp;
  int null, output, report;
  rlim_t max_fds;
};

struct Report {
  pid_t pid;
  int failed;  // errno of what could not be done, or 0
};

void tell(const Launch& launch, Report report) {
  // Smaller than PIPE_BUF: whole or not at all.
  static_cast<void>(!::write(launch.report, &report, sizeof report));
}

void close_all_else_on_exec(const Launch& launch) {
  constexpr unsigned kCloseOnExec = 4;  // CLOSE_RANGE_CLOEXEC, since Linux 5.11
  if (::syscall(SYS_close_range, 3U, ~0U, kCloseOnExec) == 0) return;
  for (rlim_t fd = 3; fd < launch.max_fds; ++fd) ::fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC);
}

[[noreturn]] void become(const Launch& launch) {
  for (int s = 1; s < NSIG; ++s) ::signal(s, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::chdir("/") == 0 && ::dup2(launch.null, 0) == 0 && ::dup2(launch.output, 1) == 1 &&
      ::dup2(launch.output, 2) == 2) {
    close_all_else_on_exec(launch);
    ::execve(launch.program, launch.argv, launch.envp);
  }
  tell(launch, {0, errno});
  ::_exit(127);
}

[[noreturn]] void detach(const Launch& launch) {
  ::setsid();
  const pid_t pid = ::fork();
  if (pid == 0) become(launch);
  tell(launch, {pid, pid < 0 ? errno : 0});
  ::_exit(0);
}

// The pid, or errno of what failed; ends when the new program runs, for that closes the pipe.
Report read_reports(int fd) {
  Report sum{0, 0};
  for (;;) {
    Report report{};
    const auto n = ::read(fd, &report, sizeof report);
    if (n < 0 && errno == EINTR) continue;
    if (n != static_cast<ssize_t>(sizeof report)) return sum;
    if (report.failed != 0) sum.failed = report.failed;
    if (report.pid > 0) sum.pid = report.pid;
  }
}

// Descriptors below 3 would be overwritten on the way to their places.
Result<Fd> above_standard(Result<Fd> fd) {
  if (!fd || fd->get() > 2) return fd;
  Fd moved(::fcntl(fd->get(), F_DUPFD_CLOEXEC, 3));
  if (!moved.valid()) return os_error(errno, "duplicating a descriptor");
  return moved;
}

}  // namespace

Result<std::string> boot_id() {
  RealFiles files;
  std::string id = TRY(read_file(files, "/proc/sys/kernel/random/boot_id", Bytes(64)));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

Result<std::string> absolute_path(const std::string& path) {
  std::error_code failed;
  auto whole = std::filesystem::absolute(path, failed);
  if (!failed) return whole.lexically_normal().string();
  return error(Code::kIo, "the working directory is gone, and '{}' is relative to it", path);
}

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (char** e = environ; e != nullptr && *e != nullptr; ++e) {
    const std::string_view entry = *e;
    names.emplace_back(entry.substr(0, entry.find('=')));
  }
  return names;
}

Status random_bytes(MutableByteSpan out) {
  while (!out.empty()) {
    const auto n = ::getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno != EINTR) return os_error(errno, "asking for random bytes");
    if (n > 0) out = out.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

void name_this_thread(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

Result<pid_t> spawn_detached(const std::vector<std::string>& argv,
                             const std::vector<std::pair<std::string, std::string>>& variables,
                             const std::string& output_path) {
  if (argv.empty()) return error(Code::kInvalid, "starting a program: no name is given");
  RealFiles files;
  const std::string program = TRY(find_program(argv[0]));
  const Fd null = TRY(above_standard(files.open("/dev/null", O_RDONLY, 0)));
  const Fd output = TRY(
      above_standard(files.open(output_path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600)));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return os_error(errno, "making a pipe");
  Fd read_end(ends[0]);
  Fd write_end = TRY(above_standard(Result<Fd>(Fd(ends[1]))));

  std::vector<std::string> arguments = argv, environment;
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  const auto argv_pointers = pointers(arguments), env_pointers = pointers(environment);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const Launch launch{program.c_str(), argv_pointers.data(), env_pointers.data(), null.get(),
                      output.get(),    write_end.get(),      limit.rlim_cur};

  // Blocked until the child has default handlers: ours must not run in it.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::fork();
  if (child == 0) detach(launch);
  const int fork_failed = child < 0 ? errno : 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (fork_failed != 0) return os_error(fork_failed, "starting a process");
  write_end.reset();
  const Report report = read_reports(read_end.get());
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (report.failed != 0) return os_error(report.failed, fmt::format("starting {}", program));
  if (report.pid == 0) return error(Code::kIo, "starting {}: it ended at once", program);
  return report.pid;
}

}  // namespace quiver::io
