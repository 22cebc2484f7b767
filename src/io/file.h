// Files: the whole file system behind one seam, so that tests can break any call of it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "base/units.h"

namespace quiver::io {

// Owns one file descriptor. Move-only; closes on destruction.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& o) noexcept : fd_(o.release()) {}
  Fd& operator=(Fd&& o) noexcept {
    if (this != &o) reset(), fd_ = o.release();
    return *this;
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset();

 private:
  int fd_ = -1;
};

struct FileInfo {
  Bytes size;
  Bytes blocks;  // what the file occupies on disk
  std::int64_t mtime_ns = 0;
  std::uint64_t device = 0, inode = 0;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;  // of the owner
  bool is_directory = false, is_regular = false;
};

struct DirEntry {
  std::string name;
  bool is_directory = false;  // follows symbolic links
};

struct DiskSpace {
  Bytes total, available;  // available to this user
};

// Every call is thread-safe, retries EINTR and names the path in its error.
class Files {
 public:
  virtual ~Files() = default;
  // Flags as of open(2); O_CLOEXEC is always added.
  virtual Result<Fd> open(const std::string& path, int flags, mode_t mode = 0600) = 0;
  // Reads until `out` is full or the file ends; returns the number of bytes read.
  virtual Result<std::size_t> pread(int fd, MutableByteSpan out, std::uint64_t offset) = 0;
  // Writes all of it or fails.
  virtual Status pwrite(int fd, ByteSpan data, std::uint64_t offset) = 0;
  virtual Status truncate(int fd, std::uint64_t size) = 0;
  virtual Status sync(int fd) = 0;
  virtual Result<FileInfo> stat(const std::string& path) = 0;
  virtual Result<FileInfo> stat(int fd) = 0;
  virtual Result<std::vector<DirEntry>> list(const std::string& directory) = 0;
  virtual Status make_directories(const std::string& path, mode_t mode = 0700) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove(
      const std::string& path) = 0;  // a file or empty directory; absent is success
  virtual Result<DiskSpace> space(const std::string& path) = 0;
};

class RealFiles final : public Files {
 public:
  Result<Fd> open(const std::string& path, int flags, mode_t mode) override;
  Result<std::size_t> pread(int fd, MutableByteSpan out, std::uint64_t offset) override;
  Status pwrite(int fd, ByteSpan data, std::uint64_t offset) override;
  Status truncate(int fd, std::uint64_t size) override;
  Status sync(int fd) override;
  Result<FileInfo> stat(const std::string& path) override;
  Result<FileInfo> stat(int fd) override;
  Result<std::vector<DirEntry>> list(const std::string& directory) override;
  Status make_directories(const std::string& path, mode_t mode) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Result<DiskSpace> space(const std::string& path) override;
};

// The whole file. At most `limit` bytes, else kInvalid.
Result<std::string> read_file(Files& files, const std::string& path, Bytes limit);
// Complete or absent: writes beside it, syncs, renames. The temporary name is removed on failure.
Status write_file_atomically(Files& files, const std::string& path, ByteSpan data,
                             mode_t mode = 0600);

}  // namespace quiver::io
