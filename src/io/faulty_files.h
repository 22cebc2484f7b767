// Files that fail as told: for the tests of everything that touches a disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "io/file.h"

namespace quiver::io {

enum class FileOp {
  kOpen,
  kPread,
  kPwrite,
  kTruncate,
  kSync,
  kStat,
  kList,
  kMakeDirectories,
  kRename,
  kRemove,
  kSpace,
};

// One scripted failure. It applies to calls of `op` whose path (for calls on a descriptor: the path
// under which it was opened through the same object) contains `path`; of these, it lets the first
// `skip` pass and hits the next `times`.
struct FileFault {
  FileOp op = FileOp::kOpen;
  std::string path = "";  // empty: any
  std::uint64_t skip = 0;
  std::uint64_t times = UINT64_MAX;
  // What happens. With `shorten` a read ends after that many bytes and succeeds, a write puts down
  // that many bytes and then fails with errno_value; without it nothing happens but the error.
  int errno_value = 5;  // EIO
  std::optional<std::size_t> shorten = std::nullopt;
  // The call takes this much longer and then succeeds: a disk that stalls.
  std::chrono::milliseconds stall{0};
};

// Passes calls on to `files`, except those that a fault hits. Borrows `files`, which must outlive
// it. Thread-safe. The first rule that hits a call wins, but all that match count it.
class FaultyFiles final : public Files {
 public:
  explicit FaultyFiles(Files& files) : files_(files) {}

  void add(FileFault fault);
  void clear();  // all faults, the capacity and the space
  // From now on at most this many bytes more are written, by all calls together; then ENOSPC, after
  // what still fits has been put down, as a disk does. Nothing is given back by removal.
  void set_capacity(std::optional<Bytes> more);
  void set_space(DiskSpace space);       // what every disk is said to have from now on
  std::uint64_t calls(FileOp op) const;  // since it was made, those that failed included
  std::uint64_t injected() const;        // how many calls a fault or the capacity has hit

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

 private:
  struct Rule {
    FileFault fault;
    std::uint64_t seen = 0;
  };
  struct State {
    std::vector<Rule> rules;
    std::map<int, std::string> paths;  // of open descriptors; a number reused is overwritten
    std::map<FileOp, std::uint64_t> calls;
    std::optional<std::uint64_t> capacity;
    std::optional<DiskSpace> space;
    std::uint64_t injected = 0;
  };

  std::optional<FileFault> hit(FileOp op, const std::string& path);
  std::optional<FileFault> hit(FileOp op, int fd);
  static std::optional<FileFault> hit(State& state, FileOp op, const std::string& path);
  static std::optional<FileFault> stalled(std::optional<FileFault> fault);
  std::size_t take_capacity(std::size_t wanted);

  Files& files_;
  Guarded<State> state_;
};

}  // namespace quiver::io
