#include "cache/origin/directory_origin.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <vector>

#include "cache/origin/pace.h"
#include "cache/origin/ranged_read.h"
#include "cache/origin/retry.h"

namespace quiver::cache {
namespace {

constexpr std::size_t kMaxDepth = 128;                // of nested directories, links included
constexpr std::size_t kPiece = std::size_t{4} << 20;  // between two looks at the stop token

using DirectoryId = std::pair<std::uint64_t, std::uint64_t>;  // device, inode

ObjectVersion version_of(const io::FileInfo& info) {
  return {info.size, "", info.mtime_ns};
}

bool same(const ObjectVersion& a, const ObjectVersion& b) {
  return a.size == b.size && a.mtime_ns == b.mtime_ns;
}

// Borrows files and clock. Any thread may call. Symbolic links are followed, also out of the root;
// a directory that contains itself is listed once per way that does not pass through it twice;
// links that lead nowhere, sockets, pipes and devices are not listed. A read compares size and
// mtime of the open file with those expected, before and after: another version is kChanged, never
// a mixture.
class DirectoryOrigin final : public Origin {
 public:
  DirectoryOrigin(std::string url, std::string root, Bytes rate_limit, OriginContext context)
      : url_(std::move(url)),
        root_(std::move(root)),
        context_(context),
        wait_(context.wait ? context.wait : real_waiter()),
        rate_limit_(rate_limit),
        pace_(pace_of(context, "file:")) {}

  Status list(const std::function<Status(ListedObject)>& each, std::stop_token stop) override {
    ++lists_;
    Walk walk{each, stop, {}};
    return list_below(walk, "");
  }
  Result<ListedObject> head(const std::string& key, std::stop_token stop) override;
  Status read(const ReadRequest& request, MutableByteSpan out, std::stop_token stop) override;
  OriginStats stats() const override {
    OriginStats stats;
    stats.lists = lists_;
    stats.heads = heads_;
    stats.gets = gets_;
    stats.retries = stats.retries_by_class[std::size_t(RetryClass::kReset)] = retries_;
    stats.body_bytes = Bytes(body_bytes_);
    return stats;
  }
  std::string url() const override { return url_; }

 private:
  struct Walk {
    const std::function<Status(ListedObject)>& each;
    std::stop_token stop;
    std::vector<DirectoryId> inside;  // the directories on the way here
  };

  Status list_below(Walk& walk, const std::string& prefix);
  Status list_entry(Walk& walk, const std::string& key, bool directory);
  Result<std::string> path_of(const std::string& key) const;
  Status read_once(const std::string& path, const ReadRequest& request, MutableByteSpan out,
                   std::stop_token stop);

  const std::string url_, root_;
  OriginContext context_;
  Waiter wait_;
  const Bytes rate_limit_;
  const std::shared_ptr<OriginPace> pace_;
  std::atomic<std::uint64_t> lists_{0}, heads_{0}, gets_{0}, retries_{0}, body_bytes_{0};
};

// Keys are names as the directory holds them: one that navigates is the name of no file.
Result<std::string> DirectoryOrigin::path_of(const std::string& key) const {
  bool plain = !key.empty() && key.find('\0') == key.npos;
  for (std::size_t start = 0; plain && start <= key.size();) {
    const std::size_t end = std::min(key.find('/', start), key.size());
    const std::string_view part = std::string_view(key).substr(start, end - start);
    plain = !part.empty() && part != "." && part != "..";
    start = end + 1;
  }
  if (!plain) return error(Code::kNotFound, "{}: \"{}\" is no file's name", root_, key);
  return root_ + "/" + key;
}

Status DirectoryOrigin::list_below(Walk& walk, const std::string& prefix) {
  if (walk.stop.stop_requested()) return error(Code::kCancelled, "the listing was cancelled");
  const std::string directory = root_ + "/" + prefix;
  const auto info = context_.files.stat(directory);
  if (!info) return info.error();
  const DirectoryId id{info->device, info->inode};
  if (std::count(walk.inside.begin(), walk.inside.end(), id) > 0) return {};
  if (walk.inside.size() >= kMaxDepth) {
    return error(Code::kInvalid, "{}: directories are nested more than {} deep", directory,
                 kMaxDepth);
  }
  auto listed = context_.files.list(directory);
  if (!listed) return listed.error();
  // As S3 orders keys, in which a directory's name ends in a slash.
  for (auto& entry : *listed) {
    if (entry.is_directory) entry.name += '/';
  }
  std::sort(listed->begin(), listed->end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  walk.inside.push_back(id);
  for (const auto& entry : *listed) {
    if (auto done = list_entry(walk, prefix + entry.name, entry.is_directory); !done) return done;
  }
  walk.inside.pop_back();
  return {};
}

Status DirectoryOrigin::list_entry(Walk& walk, const std::string& key, bool directory) {
  if (directory) return list_below(walk, key);
  const auto info = context_.files.stat(root_ + "/" + key);
  if (!info) {
    const bool loop = info.error().message.ends_with(std::generic_category().message(ELOOP));
    if (loop || info.error().code == Code::kNotFound)
      return {};  // a link to nowhere, or gone since
    return info.error();
  }
  if (!info->is_regular) return {};
  return walk.each({key, version_of(*info), std::nullopt});
}

Result<ListedObject> DirectoryOrigin::head(const std::string& key, std::stop_token) {
  ++heads_;
  const std::string path = TRY(path_of(key));
  const auto info = context_.files.stat(path);
  if (!info) return info.error();
  if (!info->is_regular) return error(Code::kNotFound, "{} is not a regular file", path);
  return ListedObject{key, version_of(*info), std::nullopt};
}

Status DirectoryOrigin::read(const ReadRequest& request, MutableByteSpan out,
                             std::stop_token stop) {
  if (out.empty()) return {};
  if (auto sane = check_range(request, out.size()); !sane) return sane;
  const auto path = path_of(request.key);
  if (!path) return path.error();
  auto done = read_once(*path, request, out, stop);
  // ESTALE: another NFS client has replaced the file. Its name leads to the new one; if that
  // differs the version says so.
  if (done || done.error().code != Code::kIo) return done;
  ++retries_;
  return read_once(*path, request, out, stop);
}

Status DirectoryOrigin::read_once(const std::string& path, const ReadRequest& request,
                                  MutableByteSpan out, std::stop_token stop) {
  ++gets_;
  io::Files& files = context_.files;
  const auto file = files.open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);  // a pipe must not block
  if (!file) return file.error();
  const auto before = files.stat(file->get());
  if (!before) return before.error();
  if (!before->is_regular) return error(Code::kNotFound, "{} is not a regular file", path);
  const ObjectVersion expected =
      any_version(request.expected) ? version_of(*before) : request.expected;
  auto changed = [&] {
    return error(Code::kChanged, "{} has changed; digest the dataset again", path);
  };
  if (!same(version_of(*before), expected)) return changed();
  for (std::size_t filled = 0; filled < out.size();) {
    if (stop.stop_requested()) return error(Code::kCancelled, "reading {} was cancelled", path);
    const auto piece = out.subspan(filled, std::min(kPiece, out.size() - filled));
    const auto got = files.pread(file->get(), piece, request.offset + filled);
    if (!got) return got.error();
    body_bytes_ += *got;
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(
        pace_->bytes.reserve(Bytes(*got), rate_limit_));
    if (pause.count() > 0 && !wait_(pause, stop)) {
      return error(Code::kCancelled, "reading {} was cancelled", path);
    }
    filled += *got;
    if (*got < piece.size()) {
      const auto now = files.stat(file->get());
      if (now && !same(version_of(*now), expected)) return changed();
      return error(Code::kShort, "{} ended at byte {}", path, request.offset + filled);
    }
  }
  const auto after = files.stat(file->get());
  if (!after) return after.error();
  if (!same(version_of(*after), expected)) return changed();
  return {};
}

}  // namespace

Result<std::unique_ptr<Origin>> make_directory_origin(const OriginSettings& settings,
                                                      std::string path, OriginContext context) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (!path.starts_with('/')) {
    return error(Code::kInvalid, "{} is not an absolute path; write it from /", settings.url);
  }
  return std::make_unique<DirectoryOrigin>(settings.url, std::move(path), settings.rate_limit,
                                           context);
}

}  // namespace quiver::cache
