#include "cache/client/cache_directory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>

namespace quiver::cache {
namespace {

constexpr std::array kScratchVariables = {"SLURM_TMPDIR", "LOCAL_SCRATCH", "TMPDIR"};
constexpr std::array kScratchFolders = {"/scratch/local", "/local_scratch", "/local/scratch",
                                        "/var/tmp"};
constexpr std::array<std::string_view, 17> kNetworkFilesystems = {
    "nfs",       "nfs4",      "lustre",        "cifs", "smb3",  "smbfs", "beegfs",
    "gpfs",      "ceph",      "afs",           "9p",   "pvfs2", "panfs", "fuse.sshfs",
    "fuse.ceph", "glusterfs", "fuse.glusterfs"};
constexpr Bytes kMountTableLimit = 4_MiB;

bool lies_below(std::string_view path, std::string_view folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.remove_suffix(1);
  if (folder == "/") return true;
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

bool is_usable(const std::string& folder, const std::string& home, std::string_view mounts,
               io::Files& files) {
  if (folder.empty() || folder[0] != '/' || folder == "/tmp") return false;
  if (!home.empty() && home != "/" && lies_below(folder, home)) return false;
  const std::string type = filesystem_of(mounts, folder);
  if (std::ranges::find(kNetworkFilesystems, type) != kNetworkFilesystems.end()) return false;
  const auto info = files.stat(folder);
  return info && info->is_directory;
}

}  // namespace

std::string filesystem_of(std::string_view mount_table, std::string_view path) {
  std::istringstream lines{std::string(mount_table)};
  std::string best, type;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string device, where, kind;
    if (!(words >> device >> where >> kind) || !lies_below(path, where)) continue;
    if (where.size() < best.size()) continue;  // the last mount at a place is the visible one
    best = where;
    type = kind;
  }
  return type;
}

Result<std::string> choose_cache_directory(const Settings& settings, io::Files& files,
                                           const Getenv& environment) {
  if (!settings.cache_dir.empty()) return settings.cache_dir;
  const std::string home = environment("HOME").value_or("");
  const std::string mounts =
      io::read_file(files, "/proc/self/mounts", kMountTableLimit).value_or("");
  std::vector<std::string> candidates;
  for (const char* name : kScratchVariables) {
    if (auto value = environment(name)) candidates.push_back(*std::move(value));
  }
  candidates.insert(candidates.end(), kScratchFolders.begin(), kScratchFolders.end());
  for (std::string& folder : candidates) {
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    if (is_usable(folder, home, mounts, files)) {
      return fmt::format("{}/quiver-{}", folder, ::getuid());
    }
  }
  return error(Code::kInvalid,
               "no local directory for the cache was found (/var/tmp is missing or on a network "
               "file system): name one on a local disk with cache_dir or QUIVER_CACHE_DIR");
}

}  // namespace quiver::cache
