#include "io/capped_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace quiver::io {
namespace {

bool same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

CappedLog::CappedLog(LogLevel least, std::string path, Bytes cap)
    : stderr_(least), path_(std::move(path)), cap_(cap) {
  struct stat named {
  }, open{};
  ours_ = ::lstat(path_.c_str(), &named) == 0 && ::fstat(STDERR_FILENO, &open) == 0 &&
          S_ISREG(named.st_mode) && same(named, open);
}

void CappedLog::write(LogLevel level, std::string_view line) {
  if (ours_) cap_it();
  stderr_.write(level, line);
}

// Another daemon that was not needed may have turned it: then the new one is taken up.
void CappedLog::cap_it() {
  std::lock_guard lock(turning_);
  struct stat named {
  }, open{};
  if (::fstat(STDERR_FILENO, &open) != 0 || static_cast<std::uint64_t>(open.st_size) < cap_.value) {
    return;
  }
  const bool here = ::lstat(path_.c_str(), &named) == 0;
  if (here && same(named, open) && ::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) return;
  const int fd =
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return;
  static_cast<void>(::dup2(fd, STDOUT_FILENO));
  static_cast<void>(::dup2(fd, STDERR_FILENO));
  ::close(fd);
}

}  // namespace quiver::io
