#include "cache/store/directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace quiver::cache {
namespace {

constexpr Bytes kMarkerLimit{4096};
// Marker, boot file, the boot file's successor while it is written.
constexpr std::uint64_t kSmallFiles = 3;
constexpr int kLockTries = 8;
constexpr std::uint32_t kOthersMayWrite = S_IWGRP | S_IWOTH;
constexpr int kAsDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

bool is_leftover(std::string_view name) {
  return (name.starts_with("quiver-cache.") || name.starts_with("boot.")) && name.ends_with(".tmp");
}

std::string path_of(const io::Fd& fd) {
  return fmt::format("/proc/self/fd/{}", fd.get());
}

}  // namespace

Result<FileSystem> file_system_of(std::string path) {
  for (;;) {
    struct statfs s {};
    int failed;
    do {
      failed = ::statfs(path.empty() ? "/" : path.c_str(), &s) < 0 ? errno : 0;
    } while (failed == EINTR);
    if (failed == 0) {
      return FileSystem{static_cast<std::uint32_t>(s.f_type), (s.f_flags & ST_RDONLY) != 0};
    }
    const auto slash = path.find_last_of('/');
    if ((failed != ENOENT && failed != ENOTDIR) || path.empty()) {
      return os_error(failed, fmt::format("looking at the file system of {}", path));
    }
    path = slash == std::string::npos ? "." : path.substr(0, slash);
  }
}

const char* network_file_system(std::uint64_t type) {
  struct Known {
    std::uint64_t type;
    const char* name;
  };
  static constexpr std::array kKnown{
      Known{0x6969, "NFS"},        Known{0x0bd00bd0, "Lustre"}, Known{0x517b, "SMB"},
      Known{0xff534d42, "CIFS"},   Known{0xfe534d42, "SMB"},    Known{0x47504653, "GPFS"},
      Known{0x19830326, "BeeGFS"}, Known{0x00c36400, "Ceph"},   Known{0x5346414f, "AFS"},
      Known{0xaad7aaea, "PanFS"},  Known{0x7461636f, "OCFS2"},  Known{0x01161970, "GFS2"}};
  const auto it = std::ranges::find(kKnown, type, &Known::type);
  return it == kKnown.end() ? nullptr : it->name;
}

Error explain_failure(const std::string& directory, bool existed, const FileSystem& system,
                      Error cause) {
  constexpr std::string_view kCure = "set cache_dir to a directory on a local disk";
  if (cause.code == Code::kNoSpace) {
    return error(Code::kNoSpace,
                 "there is no space for the cache directory {}: free some or {} ({})", directory,
                 kCure, cause.message);
  }
  if (system.read_only) {
    return error(Code::kDenied, "the cache directory {} lies on a read-only file system: {}",
                 directory, kCure);
  }
  if (!existed) {
    return error(cause.code == Code::kDenied ? Code::kDenied : Code::kInvalid,
                 "the cache directory {} is missing and cannot be created: {} ({})", directory,
                 kCure, cause.message);
  }
  if (cause.code == Code::kDenied) {
    return error(Code::kDenied, "the cache directory {} cannot be written: allow it or {} ({})",
                 directory, kCure, cause.message);
  }
  return std::move(cause).context(fmt::format("opening the cache directory {}", directory));
}

std::string Directory::data_path(SegmentId id) const {
  return fmt::format("{}/segments/{}", base_, data_name(id));
}

std::string Directory::index_path(SegmentId id) const {
  return fmt::format("{}/segments/{}", base_, index_name(id));
}

Result<io::Fd> Directory::open_data(SegmentId id, int flags) const {
  return files_.open(data_path(id), flags | O_NOFOLLOW, 0600);
}

Result<io::Fd> Directory::open_index(SegmentId id, int flags) const {
  return files_.open(index_path(id), flags | O_NOFOLLOW, 0600);
}

Result<std::unique_ptr<Directory>> Directory::open(const std::string& path, io::Files& files) {
  if (path.empty()) return error(Code::kInvalid, "the cache has no directory: set cache_dir");
  std::unique_ptr<Directory> directory(new Directory(path, files));
  if (Status ok = directory->check_place(); !ok) return std::move(ok).error();
  if (Status ok = directory->recreate(); !ok) return std::move(ok).error();
  if (Status ok = directory->remove_leftovers(); !ok) return std::move(ok).error();
  return directory;
}

// Nothing is created before all of it is allowed.
Status Directory::check_place() {
  system_ = TRY(file_system_of(path_));
  if (const char* name = network_file_system(system_.type)) {
    return error(Code::kInvalid,
                 "the cache directory {} lies on {}, and a cache must not: set cache_dir to a "
                 "directory on a local disk",
                 path_, name);
  }
  const auto info = files_.stat(path_);
  existed_ = info.has_value();
  if (!info) {
    if (info.error().code == Code::kNotFound) return {};
    return explain_failure(path_, existed_, system_, info.error());
  }
  if (!info->is_directory) {
    return error(Code::kInvalid, "the cache directory {} is not a directory: set cache_dir to one",
                 path_);
  }
  auto entries = files_.list(path_);
  if (!entries) return explain_failure(path_, existed_, system_, std::move(entries).error());
  const bool marked = std::ranges::any_of(
      *entries, [](const auto& e) { return e.name == "quiver-cache" && !e.is_directory; });
  if (!marked && !entries->empty()) {
    return error(Code::kInvalid,
                 "the directory {} is not empty and is no cache (it has no file quiver-cache): set "
                 "cache_dir to an empty or new one; nothing was touched",
                 path_);
  }
  return {};
}

// The directory itself, once it is known to be ours and to be written by nobody else.
Result<io::Fd> Directory::take_hold() {
  auto fd = files_.open(path_, kAsDirectory, 0);
  if (!fd) {
    const auto led_to = files_.stat(path_);
    if (led_to && led_to->is_directory && fd.error().code != Code::kDenied) {
      return error(Code::kInvalid,
                   "the cache directory {} is a symbolic link ({}): set cache_dir to the directory "
                   "itself",
                   path_, fd.error().message);
    }
    return explain_failure(path_, existed_, system_, std::move(fd).error());
  }
  const io::FileInfo info = TRY(files_.stat(fd->get()));
  if (info.uid != ::geteuid()) {
    return error(Code::kDenied,
                 "the cache directory {} belongs to the user with uid {}, not to yours ({}), who "
                 "could change what is in it: set cache_dir to a directory of your own",
                 path_, info.uid, ::geteuid());
  }
  if ((info.mode & kOthersMayWrite) != 0) TRY(make_private(fd->get(), info));
  return fd;
}

// The mode of an empty directory is put right. What others may have put into one is not trusted.
Status Directory::make_private(int fd, const io::FileInfo& info) {
  const std::string base = fmt::format("/proc/self/fd/{}", fd);
  const auto fresh = TRY(is_fresh(base));
  if (fresh && ::fchmod(fd, 0700) == 0 && TRY(is_fresh(base))) return {};
  return error(Code::kDenied,
               "the cache directory {} can be written by others (mode {:03o}), so what is in it "
               "cannot be trusted: delete it, or set cache_dir to another one",
               path_, info.mode & 0777);
}

// What a client makes before it starts a daemon is no content.
Result<bool> Directory::is_fresh(const std::string& base) const {
  for (const auto& entry : TRY(files_.list(base))) {
    if (entry.name == "quiverd.log") continue;
    if (entry.name != "quiver-cache") return false;
    if (TRY(files_.stat(base + "/" + entry.name)).size.value != 0) return false;
  }
  return true;
}

Status Directory::recreate() {
  const auto explained = [&](Status status) -> Status {
    if (status) return status;
    return explain_failure(path_, existed_, system_, std::move(status).error());
  };
  TRY(explained(files_.make_directories(path_, 0700)));
  io::Fd found = TRY(take_hold());
  // Nothing else here changes before the lock is ours.
  TRY(lock(path_of(found)));
  if (!hold_.valid()) {
    hold_ = std::move(found);
    base_ = path_of(hold_);
  } else if (::dup3(found.get(), hold_.get(), O_CLOEXEC) < 0) {
    return os_error(errno, fmt::format("taking hold of {}", path_));
  }
  TRY(explained(files_.make_directories(segments_path(), 0700)));
  return check_segments_folder();
}

Status Directory::check_segments_folder() {
  auto fd = files_.open(segments_path(), kAsDirectory, 0);
  if (!fd) return explain_failure(path_, true, system_, std::move(fd).error());
  const io::FileInfo info = TRY(files_.stat(fd->get()));
  if (info.uid == ::geteuid() && (info.mode & kOthersMayWrite) == 0) return {};
  return error(Code::kDenied,
               "the folder segments of the cache directory {} belongs to another user or can be "
               "written by others, so what is in it cannot be trusted: delete it, or set cache_dir "
               "to another directory",
               path_);
}

// Where only a part of the directory has gone, our own lock is still the one that counts.
Result<bool> Directory::holds_lock_of(const std::string& base) const {
  const auto named = files_.stat(base + "/quiver-cache");
  if (!named && named.error().code == Code::kNotFound) return false;
  if (!named) return named.error();
  return lock_.with([&](const Lock& l) {
    return l.marker.valid() && named->device == l.device && named->inode == l.inode;
  });
}

Status Directory::lock(const std::string& base) {
  if (TRY(holds_lock_of(base))) return {};
  const std::string marker_file = base + "/quiver-cache";
  for (int i = 0; i < kLockTries; ++i) {
    auto fd = files_.open(marker_file, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (!fd) return explain_failure(path_, existed_, system_, std::move(fd).error());
    int failed;
    do {
      failed = ::flock(fd->get(), LOCK_EX | LOCK_NB) < 0 ? errno : 0;
    } while (failed == EINTR);
    if (failed == EWOULDBLOCK) {
      const auto text = io::read_file(files_, marker_file, kMarkerLimit);
      const auto marker = text ? decode_marker(*text) : Result<Marker>(Marker{});
      return error(Code::kUnavailable,
                   "the cache directory {} is in use by the daemon with pid {}: join it, stop it "
                   "or set another cache_dir",
                   path_, marker ? marker->pid : 0);
    }
    if (failed != 0) return os_error(failed, fmt::format("locking {}/quiver-cache", path_));
    const io::FileInfo held = TRY(files_.stat(fd->get()));
    const auto named = files_.stat(marker_file);
    if (!named || named->inode != held.inode || named->device != held.device) continue;
    if (auto claimed = claim(fd->get()); !claimed) {
      return explain_failure(path_, existed_, system_, std::move(claimed).error());
    }
    const io::FileInfo written = TRY(files_.stat(fd->get()));
    if (base_.empty()) unit_ = std::clamp(written.blocks, Bytes(4096), Bytes(65536));
    lock_.with([&](Lock& l) { l = {std::move(*fd), held.device, held.inode}; });
    return {};
  }
  return error(Code::kUnavailable, "the marker of {} changes while it is locked", path_);
}

// An empty marker is one whose maker was killed just there.
Status Directory::claim(int fd) {
  std::array<std::byte, 256> bytes{};
  const std::size_t n = TRY(files_.pread(fd, bytes, 0));
  if (n > 0) {
    const Marker marker = TRY(decode_marker(as_text(ByteSpan(bytes).first(n))));
    if (marker.version != kStoreVersion) {
      return error(Code::kVersion,
                   "the cache directory {} has format {}, this program writes {}: set another "
                   "cache_dir or delete it",
                   path_, marker.version, kStoreVersion);
    }
  }
  return files_.pwrite(fd, as_bytes(encode_marker(static_cast<std::uint64_t>(::getpid()))), 0);
}

Status Directory::remove_leftovers() const {
  for (const auto& entry : TRY(files_.list(base_))) {
    if (!entry.is_directory && is_leftover(entry.name)) {
      if (Status ok = files_.remove(base_ + "/" + entry.name); !ok) return std::move(ok).error();
    }
  }
  return {};
}

// What somebody else put below the directory counts, too: it is not ours to delete.
Result<Bytes> Directory::blocks_below(const std::string& directory, bool skip_segments) const {
  Bytes sum = TRY(files_.stat(directory))
  .blocks;
  for (const auto& entry : TRY(files_.list(directory))) {
    const std::string path = directory + "/" + entry.name;
    if (skip_segments && (path == segments_path() || path == marker_path() || path == boot_path() ||
                          is_leftover(entry.name))) {
      continue;
    }
    if (directory == segments_path() && parse_name(entry.name)) continue;
    const auto info = files_.stat(path);
    if (!info) continue;  // gone meanwhile, or a link to nowhere
    sum += entry.is_directory ? TRY(blocks_below(path, false)) : info->blocks;
  }
  return sum;
}

Result<Bytes> Directory::foreign() const {
  const Bytes all = TRY(blocks_below(segments_path(), false));
  return all - std::min(all, TRY(folder()));
}

Result<Bytes> Directory::overhead_beside_segments() const {
  return TRY(blocks_below(base_, true))
  +unit_* kSmallFiles;
}

// Asks by name: what is open here stays, whoever removes or replaces it.
Result<bool> Directory::gone() const {
  const auto segments = files_.stat(path_ + "/segments");
  if (!segments && segments.error().code == Code::kNotFound) return true;
  const auto info = files_.stat(path_ + "/quiver-cache");
  if (!info && info.error().code != Code::kNotFound) return info.error();
  if (!info) return true;
  return lock_.with(
      [&](const Lock& l) { return info->device != l.device || info->inode != l.inode; });
}

}  // namespace quiver::cache
