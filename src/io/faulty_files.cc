#include "io/faulty_files.h"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

namespace quiver::io {
namespace {

Error injected_error(int errno_value) {
  return os_error(errno_value, "a fault of the test");
}

}  // namespace

void FaultyFiles::add(FileFault fault) {
  state_.with([&](State& s) { s.rules.push_back({std::move(fault)}); });
}

void FaultyFiles::clear() {
  state_.with([](State& s) {
    s.rules.clear();
    s.capacity.reset();
    s.space.reset();
  });
}

void FaultyFiles::set_capacity(std::optional<Bytes> more) {
  state_.with([&](State& s) { s.capacity = more ? std::optional(more->value) : std::nullopt; });
}

void FaultyFiles::set_space(DiskSpace space) {
  state_.with([&](State& s) { s.space = space; });
}

std::uint64_t FaultyFiles::calls(FileOp op) const {
  return state_.with([&](const State& s) {
    const auto it = s.calls.find(op);
    return it == s.calls.end() ? 0 : it->second;
  });
}

std::uint64_t FaultyFiles::injected() const {
  return state_.with([](const State& s) { return s.injected; });
}

std::optional<FileFault> FaultyFiles::hit(State& state, FileOp op, const std::string& path) {
  ++state.calls[op];
  std::optional<FileFault> first;
  for (Rule& rule : state.rules) {
    const FileFault& f = rule.fault;
    if (f.op != op || path.find(f.path) == std::string::npos) continue;
    const std::uint64_t nth = rule.seen++;
    if (nth >= f.skip && nth - f.skip < f.times && !first) first = f;
  }
  if (first) ++state.injected;
  return first;
}

std::optional<FileFault> FaultyFiles::hit(FileOp op, const std::string& path) {
  return stalled(state_.with([&](State& s) { return hit(s, op, path); }));
}

std::optional<FileFault> FaultyFiles::hit(FileOp op, int fd) {
  return stalled(state_.with([&](State& s) {
    const auto it = s.paths.find(fd);
    return hit(s, op, it == s.paths.end() ? std::string() : it->second);
  }));
}

std::optional<FileFault> FaultyFiles::stalled(std::optional<FileFault> fault) {
  if (!fault || fault->stall.count() == 0) return fault;
  std::this_thread::sleep_for(fault->stall);
  return std::nullopt;
}

std::size_t FaultyFiles::take_capacity(std::size_t wanted) {
  return state_.with([&](State& s) {
    if (!s.capacity) return wanted;
    const std::size_t granted = std::min<std::uint64_t>(wanted, *s.capacity);
    *s.capacity -= granted;
    if (granted < wanted) ++s.injected;
    return granted;
  });
}

Result<Fd> FaultyFiles::open(const std::string& path, int flags, mode_t mode) {
  if (const auto f = hit(FileOp::kOpen, path)) return injected_error(f->errno_value);
  Fd fd = TRY(files_.open(path, flags, mode));
  state_.with([&](State& s) { s.paths[fd.get()] = path; });
  return fd;
}

Result<std::size_t> FaultyFiles::pread(int fd, MutableByteSpan out, std::uint64_t offset) {
  if (const auto f = hit(FileOp::kPread, fd)) {
    if (!f->shorten) return injected_error(f->errno_value);
    out = out.first(std::min(out.size(), *f->shorten));
  }
  return files_.pread(fd, out, offset);
}

Status FaultyFiles::pwrite(int fd, ByteSpan data, std::uint64_t offset) {
  if (const auto f = hit(FileOp::kPwrite, fd)) {
    const std::size_t put = take_capacity(std::min(data.size(), f->shorten.value_or(0)));
    if (Status s = files_.pwrite(fd, data.first(put), offset); !s) return s;
    return injected_error(f->errno_value);
  }
  const std::size_t granted = take_capacity(data.size());
  if (Status s = files_.pwrite(fd, data.first(granted), offset); !s) return s;
  if (granted < data.size()) return injected_error(ENOSPC);
  return {};
}

Status FaultyFiles::truncate(int fd, std::uint64_t size) {
  if (const auto f = hit(FileOp::kTruncate, fd)) return injected_error(f->errno_value);
  return files_.truncate(fd, size);
}

Status FaultyFiles::sync(int fd) {
  if (const auto f = hit(FileOp::kSync, fd)) return injected_error(f->errno_value);
  return files_.sync(fd);
}

Result<FileInfo> FaultyFiles::stat(const std::string& path) {
  if (const auto f = hit(FileOp::kStat, path)) return injected_error(f->errno_value);
  return files_.stat(path);
}

Result<FileInfo> FaultyFiles::stat(int fd) {
  if (const auto f = hit(FileOp::kStat, fd)) return injected_error(f->errno_value);
  return files_.stat(fd);
}

Result<std::vector<DirEntry>> FaultyFiles::list(const std::string& directory) {
  if (const auto f = hit(FileOp::kList, directory)) return injected_error(f->errno_value);
  return files_.list(directory);
}

Status FaultyFiles::make_directories(const std::string& path, mode_t mode) {
  if (const auto f = hit(FileOp::kMakeDirectories, path)) return injected_error(f->errno_value);
  return files_.make_directories(path, mode);
}

Status FaultyFiles::rename(const std::string& from, const std::string& to) {
  if (const auto f = hit(FileOp::kRename, from)) return injected_error(f->errno_value);
  return files_.rename(from, to);
}

Status FaultyFiles::remove(const std::string& path) {
  if (const auto f = hit(FileOp::kRemove, path)) return injected_error(f->errno_value);
  return files_.remove(path);
}

Result<DiskSpace> FaultyFiles::space(const std::string& path) {
  if (const auto f = hit(FileOp::kSpace, path)) return injected_error(f->errno_value);
  const auto said = state_.with([](const State& s) { return s.space; });
  return said ? *said : files_.space(path);
}

}  // namespace quiver::io
