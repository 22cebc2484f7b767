#include "io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "io/process.h"

namespace quiver::io {
namespace {

template <class F>
auto retry(F&& call) {
  for (;;) {
    const auto r = call();
    if (r >= 0 || errno != EINTR) return r;
  }
}

constexpr std::string_view kDescriptors = "/proc/self/fd/";

// The name of an open file; empty when it is not known.
std::string name_of(std::string_view descriptor) {
  std::array<char, 4096> path{};
  const std::string link = fmt::format("{}{}", kDescriptors, descriptor);
  const auto n = ::readlink(link.c_str(), path.data(), path.size());
  return n < 0 ? "" : std::string(path.data(), static_cast<std::size_t>(n));
}

// A path that begins at a descriptor, as people know it.
std::string readable(const std::string& path) {
  if (!path.starts_with(kDescriptors)) return path;
  const std::string_view rest = std::string_view(path).substr(kDescriptors.size());
  const auto end = std::min(rest.find('/'), rest.size());
  const std::string name = name_of(rest.substr(0, end));
  return name.empty() ? path : fmt::format("{}{}", name, rest.substr(end));
}

// Errors are rare, so names are looked up only then.
Error fd_error(int errno_value, std::string_view doing, int fd) {
  const std::string name = name_of(fmt::format("{}", fd));
  if (name.empty()) return os_error(errno_value, fmt::format("{} descriptor {}", doing, fd));
  return os_error(errno_value, fmt::format("{} {}", doing, name));
}

Error path_error(int errno_value, std::string_view doing, const std::string& path) {
  return os_error(errno_value, fmt::format("{} {}", doing, readable(path)));
}

FileInfo to_info(const struct stat& s) {
  return FileInfo{
      .size = Bytes(static_cast<std::uint64_t>(s.st_size)),
      .blocks = Bytes(static_cast<std::uint64_t>(s.st_blocks) * 512),
      .mtime_ns = std::int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec,
      .device = s.st_dev,
      .inode = s.st_ino,
      .mode = s.st_mode,
      .uid = s.st_uid,
      .is_directory = S_ISDIR(s.st_mode),
      .is_regular = S_ISREG(s.st_mode),
  };
}

bool is_directory(int parent, const dirent& entry) {
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct stat s {};
  return ::fstatat(parent, entry.d_name, &s, 0) == 0 && S_ISDIR(s.st_mode);
}

}  // namespace

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<Fd> RealFiles::open(const std::string& path, int flags, mode_t mode) {
  const int fd = retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
  if (fd < 0) return path_error(errno, "opening", path);
  return Fd(fd);
}

Result<std::size_t> RealFiles::pread(int fd, MutableByteSpan out, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto n = retry([&] {
      return ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    });
    if (n < 0) return fd_error(errno, "reading", fd);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

Status RealFiles::pwrite(int fd, ByteSpan data, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < data.size()) {
    const auto n = retry([&] {
      return ::pwrite(fd, data.data() + done, data.size() - done,
                      static_cast<off_t>(offset + done));
    });
    if (n <= 0) return fd_error(n < 0 ? errno : EIO, "writing", fd);
    done += static_cast<std::size_t>(n);
  }
  return {};
}

Status RealFiles::truncate(int fd, std::uint64_t size) {
  if (retry([&] { return ::ftruncate(fd, static_cast<off_t>(size)); }) < 0) {
    return fd_error(errno, "truncating", fd);
  }
  return {};
}

Status RealFiles::sync(int fd) {
  if (retry([&] { return ::fdatasync(fd); }) < 0) return fd_error(errno, "syncing", fd);
  return {};
}

Result<FileInfo> RealFiles::stat(const std::string& path) {
  struct stat s {};
  if (retry([&] { return ::stat(path.c_str(), &s); }) < 0) {
    return path_error(errno, "looking at", path);
  }
  return to_info(s);
}

Result<FileInfo> RealFiles::stat(int fd) {
  struct stat s {};
  if (retry([&] { return ::fstat(fd, &s); }) < 0) return fd_error(errno, "looking at", fd);
  return to_info(s);
}

Result<std::vector<DirEntry>> RealFiles::list(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), ::closedir);
  if (!dir) return path_error(errno, "listing", directory);
  std::vector<DirEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    entries.push_back({std::string(name), is_directory(::dirfd(dir.get()), *entry)});
  }
  if (errno != 0) return path_error(errno, "listing", directory);
  return entries;
}

Status RealFiles::make_directories(const std::string& path, mode_t mode) {
  struct stat s {};
  if (::stat(path.c_str(), &s) == 0) {
    if (S_ISDIR(s.st_mode)) return {};
    return path_error(ENOTDIR, "making the directory", path);
  }
  if (errno != ENOENT) return path_error(errno, "making the directory", path);
  const auto name_end = path.find_last_not_of('/');
  const auto slash = path.rfind('/', name_end);
  if (name_end != std::string::npos && slash != std::string::npos && slash > 0) {
    if (Status made = make_directories(path.substr(0, slash), mode); !made) return made;
  }
  // EEXIST: somebody else has made it since.
  if (retry([&] { return ::mkdir(path.c_str(), mode); }) < 0 && errno != EEXIST) {
    return path_error(errno, "making the directory", path);
  }
  return {};
}

Status RealFiles::rename(const std::string& from, const std::string& to) {
  if (retry([&] { return ::rename(from.c_str(), to.c_str()); }) < 0) {
    return path_error(errno, "renaming", fmt::format("{} to {}", readable(from), readable(to)));
  }
  return {};
}

Status RealFiles::remove(const std::string& path) {
  if (retry([&] { return ::unlink(path.c_str()); }) == 0 || errno == ENOENT) return {};
  const int as_file = errno;
  if (as_file == EISDIR || as_file == EPERM) {  // EPERM: what POSIX says for a directory
    if (retry([&] { return ::rmdir(path.c_str()); }) == 0 || errno == ENOENT) return {};
    if (errno != ENOTDIR) return path_error(errno, "removing", path);
  }
  return path_error(as_file, "removing", path);
}

Result<DiskSpace> RealFiles::space(const std::string& path) {
  struct statvfs s {};
  if (retry([&] { return ::statvfs(path.c_str(), &s); }) < 0) {
    return path_error(errno, "asking for the free space of", path);
  }
  return DiskSpace{.total = Bytes(std::uint64_t{s.f_blocks} * s.f_frsize),
                   .available = Bytes(std::uint64_t{s.f_bavail} * s.f_frsize)};
}

Result<std::string> read_file(Files& files, const std::string& path, Bytes limit) {
  const Fd fd = TRY(files.open(path, O_RDONLY));
  const FileInfo info = TRY(files.stat(fd.get()));
  if (info.size > limit) {
    return error(Code::kInvalid, "{} has {} bytes, which is above the limit of {}", path,
                 info.size.value, limit.value);
  }
  // Sizes lie (/proc says 0, a file grows): read until it ends, with one byte to see that it does.
  std::string data;
  std::size_t room = static_cast<std::size_t>(info.size.value) + 1;
  for (;;) {
    const std::size_t had = data.size();
    data.resize(had + room);
    const std::size_t n =
        TRY(files.pread(fd.get(), std::as_writable_bytes(std::span(data)).subspan(had), had));
    data.resize(had + n);
    if (data.size() > limit.value) {
      return error(Code::kInvalid, "{} is longer than the limit of {} bytes", path, limit.value);
    }
    if (n < room) return data;
    room = std::max<std::size_t>(4096, data.size());
  }
}

Status write_file_atomically(Files& files, const std::string& path, ByteSpan data, mode_t mode) {
  std::uint64_t random = 0;
  if (Status s = random_bytes(std::as_writable_bytes(std::span(&random, 1))); !s) return s;
  const std::string temporary = fmt::format("{}.{:016x}.tmp", path, random);
  const auto write = [&]() -> Status {
    const Fd fd = TRY(files.open(temporary, O_WRONLY | O_CREAT | O_EXCL, mode));
    if (Status s = files.pwrite(fd.get(), data, 0); !s) return s;
    if (Status s = files.sync(fd.get()); !s) return s;
    return files.rename(temporary, path);
  };
  Status written = write();
  // The first failure is the one to tell; a left-over name does no harm.
  if (!written) static_cast<void>(files.remove(temporary));
  return written;
}

}  // namespace quiver::io
