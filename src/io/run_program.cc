#include "io/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "io/file.h"

extern char** environ;

namespace quiver::io {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;
constexpr std::chrono::milliseconds kLook{5};  // at a child that has closed its output

struct Pipe {
  Fd read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return os_error(errno, "making a pipe");
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// The child's process group goes with it, however we leave.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(-pid_, SIGKILL);
    wait(0);
  }
  // True when it has ended.
  bool wait(int flags) {
    pid_t got = 0;
    while ((got = ::waitpid(pid_, &status_, flags)) < 0 && errno == EINTR) {
    }
    if (got == pid_) pid_ = 0;
    return pid_ == 0;
  }
  int status() const {
    return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  }

 private:
  pid_t pid_;
  int status_ = 0;
};

Result<pid_t> spawn(const std::vector<std::string>& argv, const Fd& out, const Fd& err) {
  std::vector<char*> pointers;
  for (const auto& a : argv) pointers.push_back(const_cast<char*>(a.c_str()));
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.get(), 2);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int failed =
      ::posix_spawnp(&pid, argv[0].c_str(), &actions, &attributes, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return os_error(failed, fmt::format("starting {}", argv[0]));
  return pid;
}

int left_ms(SteadyTime deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

}  // namespace

Result<ProgramOutput> run_program(const std::vector<std::string>& argv,
                                  std::chrono::milliseconds timeout, Bytes limit) {
  if (argv.empty()) return error(Code::kInvalid, "starting a program: no name is given");
  const SteadyTime deadline = std::chrono::steady_clock::now() + timeout;
  Pipe out = TRY(make_pipe())
  , err = TRY(make_pipe());
  Child child(TRY(spawn(argv, out.write, err.write)));
  out.write.reset();
  err.write.reset();
  const auto late = [&] {
    return error(Code::kTimeout, "{} did not end within {} s", argv[0],
                 std::chrono::duration<double>(timeout).count());
  };
  ProgramOutput got;
  const std::array<std::string*, 2> into = {&got.out, &got.err};
  std::array<pollfd, 2> ends = {pollfd{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const int ready = ::poll(ends.data(), ends.size(), left_ms(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return late();
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      std::array<char, 4096> piece;
      const ssize_t n = ::read(ends[i].fd, piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        ends[i].fd = -1;
        continue;
      }
      into[i]->append(piece.data(), static_cast<std::size_t>(n));
      if (into[i]->size() > limit.value) {
        return error(Code::kCorrupt, "{} writes more than {} bytes", argv[0], limit.value);
      }
    }
  }
  while (!child.wait(WNOHANG)) {
    if (left_ms(deadline) == 0) return late();
    std::this_thread::sleep_for(kLook);
  }
  got.status = child.status();
  return got;
}

}  // namespace quiver::io
