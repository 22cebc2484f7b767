#include "cache/store/directory.h"

#include <fcntl.h>
#include <sys/file.h>
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

bool is_leftover(std::string_view name) {
  return (name.starts_with("quiver-cache.") || name.starts_with("boot.")) && name.ends_with(".tmp");
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
  return fmt::format("{}/segments/{}", path_, data_name(id));
}

std::string Directory::index_path(SegmentId id) const {
  return fmt::format("{}/segments/{}", path_, index_name(id));
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

Status Directory::recreate() {
  const auto explained = [&](Status status) -> Status {
    if (status) return status;
    return explain_failure(path_, existed_, system_, std::move(status).error());
  };
  if (Status ok = explained(files_.make_directories(path_, 0700)); !ok)
    return std::move(ok).error();
  // Its own lock would be in the way where only a part of the directory has gone.
  lock_.with([](Lock& l) { l = {}; });
  if (Status ok = lock(); !ok) return std::move(ok).error();
  return explained(files_.make_directories(segments_path(), 0700));
}

Status Directory::lock() {
  for (int i = 0; i < kLockTries; ++i) {
    auto fd = files_.open(marker_path(), O_RDWR | O_CREAT, 0600);
    if (!fd) return explain_failure(path_, existed_, system_, std::move(fd).error());
    int failed;
    do {
      failed = ::flock(fd->get(), LOCK_EX | LOCK_NB) < 0 ? errno : 0;
    } while (failed == EINTR);
    if (failed == EWOULDBLOCK) {
      const auto text = io::read_file(files_, marker_path(), kMarkerLimit);
      const auto marker = text ? decode_marker(*text) : Result<Marker>(Marker{});
      return error(Code::kUnavailable,
                   "the cache directory {} is in use by the daemon with pid {}: join it, stop it "
                   "or set another cache_dir",
                   path_, marker ? marker->pid : 0);
    }
    if (failed != 0) return os_error(failed, fmt::format("locking {}", marker_path()));
    const io::FileInfo held = TRY(files_.stat(fd->get()));
    const auto named = files_.stat(marker_path());
    if (!named || named->inode != held.inode || named->device != held.device) continue;
    if (auto claimed = claim(fd->get()); !claimed) {
      return explain_failure(path_, existed_, system_, std::move(claimed).error());
    }
    const io::FileInfo written = TRY(files_.stat(fd->get()));
    unit_ = std::clamp(written.blocks, Bytes(4096), Bytes(65536));
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
  for (const auto& entry : TRY(files_.list(path_))) {
    if (!entry.is_directory && is_leftover(entry.name)) {
      if (Status ok = files_.remove(path_ + "/" + entry.name); !ok) return std::move(ok).error();
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

Result<Bytes> Directory::overhead() const {
  const Bytes root = TRY(blocks_below(path_, true));
  const Bytes foreign = TRY(blocks_below(segments_path(), false))
  -TRY(folder());
  return root + foreign + unit_ * kSmallFiles;
}

Result<bool> Directory::gone() const {
  const auto segments = files_.stat(segments_path());
  if (!segments && segments.error().code == Code::kNotFound) return true;
  const auto info = files_.stat(marker_path());
  if (!info && info.error().code != Code::kNotFound) return info.error();
  if (!info) return true;
  return lock_.with(
      [&](const Lock& l) { return info->device != l.device || info->inode != l.inode; });
}

}  // namespace quiver::cache
