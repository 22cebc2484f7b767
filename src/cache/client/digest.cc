#include "cache/client/digest.h"

#include <fcntl.h>

#include <algorithm>
#include <thread>

#include "cache/client/digest_keeper.h"
#include "cache/client/digest_lazy.h"
#include "cache/client/digest_previous.h"
#include "cache/manifest/image_folder.h"
#include "io/process.h"

namespace quiver::cache {
namespace {

constexpr std::uint64_t kWholeRead = std::uint64_t{32} << 20;  // longer objects are read in pieces
constexpr std::uint64_t kPiece = std::uint64_t{16} << 20;
constexpr int kHeadsWithoutChecksum = 32;  // so many in a row, and the store is not asked any more
constexpr auto kProgressEvery = std::chrono::milliseconds(100);

// One object that becomes an item.
struct Pick {
  std::size_t object;  // into the listing
  std::int32_t label;
  Sha256 hash;
  bool known = false;        // its hash is that of the last digest
  bool kept = false;         // the daemon has taken it
  bool provisional = false;  // `hash` is a name
};

struct Listing {
  std::vector<ListedObject> objects;
  std::vector<Pick> picks;  // in the manifest's order
  std::vector<std::string> classes;
  std::uint64_t directory_markers = 0, not_images = 0;
};

struct Counts {
  std::size_t next = 0;  // the pick to be claimed
  DigestProgress progress;
  std::uint64_t downloaded = 0, kept = 0;
  Bytes downloaded_bytes;
  int heads_in_vain = 0;
  std::optional<Error> failed;
  std::uint32_t threads = 0;  // still at work
};

class Digester {
 public:
  Digester(const DigestOptions& options, Environment environment, Origin& origin, Listing& listing,
           DigestKeeper* keeper)
      : options_(options),
        environment_(environment),
        origin_(origin),
        listing_(listing),
        keeper_(keeper) {}

  // Hashes every pick, in parallel.
  Result<Counts> run(const std::function<void(const DigestProgress&)>& progress,
                     std::stop_token stop);

 private:
  void work(std::stop_token stop);
  Status hash(Pick& pick, std::string& buffer, std::stop_token stop);
  Status read_young_again(WallTime began, std::stop_token stop);
  Status read(Pick& pick, std::string& buffer, std::stop_token stop);
  Result<bool> ask_checksum(Pick& pick, std::stop_token stop);

  const DigestOptions& options_;
  const Environment environment_;
  Origin& origin_;
  Listing& listing_;
  DigestKeeper* const keeper_;
  Guarded<Counts> counts_;
  std::stop_source give_up_;
};

Result<Counts> Digester::run(const std::function<void(const DigestProgress&)>& progress,
                             std::stop_token stop) {
  std::stop_callback forward(stop, [&] { give_up_.request_stop(); });
  const WallTime began = environment_.clock.wall();
  counts_.with([&](Counts& c) {
    c.progress.listing = false;
    c.progress.objects_listed = listing_.objects.size();
    c.progress.items_total = listing_.picks.size();
    for (const Pick& pick : listing_.picks) {
      c.progress.bytes_total += listing_.objects[pick.object].version.size;
    }
    c.threads = static_cast<std::uint32_t>(std::max(1, options_.settings.fetch_concurrency));
  });
  std::vector<std::jthread> threads;
  for (int i = 0; i < std::max(1, options_.settings.fetch_concurrency); ++i) {
    threads.emplace_back([this] {
      io::name_this_thread("qv-digest");
      work(give_up_.get_token());
      counts_.change([](Counts& c) { --c.threads; });
    });
  }
  bool over = false;
  while (!over) {
    over = counts_.wait_for(
        std::stop_token{}, kProgressEvery, [](const Counts& c) { return c.threads == 0; },
        [](Counts&) {});
    const auto now = counts_.with([](const Counts& c) { return c.progress; });
    if (progress) progress(now);
  }
  threads.clear();
  Counts counts = counts_.with([](Counts& c) { return c; });
  if (counts.failed) return *std::move(counts.failed);
  if (stop.stop_requested()) return error(Code::kCancelled, "the digest was interrupted");
  TRY(read_young_again(began, stop));
  return counts_.with([](Counts& c) { return std::move(c); });
}

// A file that was written while we read may have been written again within the same tick of its
// clock, and look the same. The next digest reads what was young at the end of this one; what was
// young when we read it and is no more is read again here.
Status Digester::read_young_again(WallTime began, std::stop_token stop) {
  const auto old = [](WallTime t) { return t.time_since_epoch().count() - kMtimeTickNs; };
  const std::int64_t from = old(began), until = old(environment_.clock.wall());
  std::string buffer;
  for (Pick& pick : listing_.picks) {
    const ObjectVersion& version = listing_.objects[pick.object].version;
    if (!version.etag.empty() || version.mtime_ns < from || version.mtime_ns >= until) continue;
    TRY(hash(pick, buffer, stop));
  }
  return {};
}

void Digester::work(std::stop_token stop) {
  std::string buffer;
  while (!stop.stop_requested()) {
    const std::size_t index = counts_.with([](Counts& c) { return c.next++; });
    if (index >= listing_.picks.size()) return;
    Pick& pick = listing_.picks[index];
    Status done = hash(pick, buffer, stop);
    counts_.with([&](Counts& c) {
      if (done) {
        ++c.progress.items_done;
        c.progress.bytes_done += listing_.objects[pick.object].version.size;
      } else if (!c.failed) {
        c.failed = std::move(done).error();
        give_up_.request_stop();
      }
    });
  }
}

Status Digester::hash(Pick& pick, std::string& buffer, std::stop_token stop) {
  if (pick.known) return {};
  ListedObject& object = listing_.objects[pick.object];
  if (object.version.size.value == 0) {
    pick.hash = sha256({});
    return {};
  }
  if (options_.trust_checksums && TRY(ask_checksum(pick, stop))) return {};
  Status done = read(pick, buffer, stop);
  if (done || done.error().code != Code::kChanged) return done;
  // Overwritten since it was listed: take it as it is now, if it holds still.
  ListedObject now = TRY(origin_.head(object.key, stop));
  object.version = now.version;
  return read(pick, buffer, stop);
}

// True when the store holds a SHA-256 of the whole object.
Result<bool> Digester::ask_checksum(Pick& pick, std::stop_token stop) {
  ListedObject& object = listing_.objects[pick.object];
  if (!object.sha256) {
    const bool in_vain =
        counts_.with([](const Counts& c) { return c.heads_in_vain >= kHeadsWithoutChecksum; });
    if (in_vain) return false;
    ListedObject now = TRY(origin_.head(object.key, stop));
    counts_.with([&](Counts& c) { c.heads_in_vain = now.sha256 ? 0 : c.heads_in_vain + 1; });
    object.version = now.version;
    object.sha256 = now.sha256;
  }
  if (!object.sha256) return false;
  pick.hash = *object.sha256;
  return true;
}

Status Digester::read(Pick& pick, std::string& buffer, std::stop_token stop) {
  const ListedObject& object = listing_.objects[pick.object];
  const std::uint64_t size = object.version.size.value;
  const bool whole = size <= kWholeRead;
  buffer.resize(whole ? size : kPiece);
  std::optional<DigestKeeper::LongItem> long_item;
  if (!whole && keeper_ != nullptr) long_item.emplace(keeper_->begin(object.version.size));
  bool kept = false;
  Sha256Stream stream;
  for (std::uint64_t at = 0; at < size; at += buffer.size()) {
    const auto out = std::as_writable_bytes(std::span(buffer))
                         .first(std::min<std::uint64_t>(buffer.size(), size - at));
    TRY(origin_.read({object.key, at, object.version}, out, stop));
    stream.update(out);
    const bool last = at + out.size() == size;
    if (last) pick.hash = stream.finish();
    if (long_item) kept = long_item->add(out, last ? std::optional(pick.hash) : std::nullopt);
  }
  if (whole && keeper_ != nullptr) kept = keeper_->keep(pick.hash, as_bytes(buffer));
  counts_.with([&](Counts& c) {
    ++c.downloaded;
    c.kept += kept && !pick.kept ? 1 : 0;
    c.downloaded_bytes += object.version.size;
  });
  pick.kept = pick.kept || kept;
  return {};
}

// The path of an address that is a directory.
std::optional<std::string> local_path(const std::string& url) {
  if (url.starts_with("file://")) return url.substr(7);
  return url.find("://") == std::string::npos ? std::optional(url) : std::nullopt;
}

Status check_directory(io::Files& files, const std::string& url) {
  const auto path = local_path(url);
  if (!path || !path->starts_with('/')) return {};
  const auto info = files.stat(*path);
  if (!info && info.error().code == Code::kNotFound) {
    return error(Code::kNotFound,
                 "there is no directory {}; name one that exists, or an address such as "
                 "s3://bucket/prefix",
                 *path);
  }
  if (info && !info->is_directory) {
    return error(Code::kInvalid, "{} is not a directory; name the one that it lies in", *path);
  }
  return {};
}

Result<Listing> list_folder(const DigestOptions& options, Origin& origin,
                            const std::function<void(const DigestProgress&)>& progress,
                            std::stop_token stop) {
  Listing listing;
  RealClock clock;
  Instant next{};
  const auto each = [&](ListedObject object) -> Status {
    listing.objects.push_back(std::move(object));
    if (progress && clock.now() >= next) {
      next = clock.now() + kProgressEvery;
      DigestProgress now;
      now.objects_listed = listing.objects.size();
      progress(now);
    }
    return {};
  };
  if (Status listed = origin.list(each, stop); !listed) {
    return std::move(listed).error().context(fmt::format("listing {}", origin.url()));
  }
  if (listing.objects.empty()) {
    const bool local = local_path(origin.url()).has_value();
    return error(Code::kNotFound, "there is nothing at {}; {}", origin.url(),
                 local ? "name a directory that has files" : "check the bucket and the prefix");
  }
  std::vector<ListedKey> keys;
  for (const auto& object : listing.objects)
    keys.push_back({object.key, object.version.size.value});
  if (options.layout == Layout::kFiles) {
    const FlatListing flat = TRY(flat_folder(keys, origin.url()));
    listing.directory_markers = flat.directory_markers;
    for (const std::size_t index : flat.samples) listing.picks.push_back({index, kNoLabel, {}});
    return listing;
  }
  std::vector<std::string_view> extensions(options.extensions.begin(), options.extensions.end());
  if (extensions.empty()) extensions = image_extensions();
  ImageFolderListing folder =
      TRY(image_folder(keys, origin.url(), extensions, options.allow_empty));
  listing.directory_markers = folder.directory_markers;
  listing.not_images = folder.not_images;
  listing.classes = std::move(folder.classes);
  for (const LabelledKey& sample : folder.samples) {
    listing.picks.push_back({sample.index, sample.label, {}});
  }
  return listing;
}

Result<std::string> build_manifest(const Listing& listing, const std::string& origin_url) {
  ManifestBuilder builder(origin_url);
  for (const std::string& name : listing.classes) builder.add_class(name);
  for (const Pick& pick : listing.picks) {
    const ListedObject& object = listing.objects[pick.object];
    const std::uint32_t index = builder.add_object(object.key, object.version);
    builder.add_item(pick.hash, object.version.size, object.key, pick.label, index, 0,
                     pick.provisional);
  }
  return std::move(builder).finish();
}

// What has not changed keeps its hash. Returns the bytes that are to be hashed.
Bytes keep_unchanged(Listing& listing, const PreviousDigest& previous) {
  Bytes to_hash;
  for (Pick& pick : listing.picks) {
    const ListedObject& object = listing.objects[pick.object];
    const auto hash = previous.unchanged(object.key, object.version);
    pick.known = hash.has_value();
    if (hash) {
      pick.hash = *hash;
    } else {
      to_hash += object.version.size;
    }
  }
  return to_hash;
}

void compare(DigestReport& report, const Listing& listing, const PreviousDigest& previous) {
  report.renewed = previous.exists();
  if (!report.renewed) return;
  std::uint64_t found = 0;
  for (const Pick& pick : listing.picks) {
    report.unchanged += pick.known ? 1 : 0;
    const auto then = previous.find(listing.objects[pick.object].key);
    found += then ? 1 : 0;
    report.added += then ? 0 : 1;
    report.changed += then && *then->hash != pick.hash ? 1 : 0;
  }
  report.removed = previous.size() - found;
}

// What nobody has read gets a name. True when there is any such item.
Result<bool> name_unread(const DigestOptions& options, io::Files& files, Listing& listing) {
  const auto names =
      TRY(ProvisionalNames::open(files, manifest_folder(options.settings), options.origin));
  bool any = false;
  for (Pick& pick : listing.picks) {
    if (pick.known) continue;
    const ListedObject& object = listing.objects[pick.object];
    pick.provisional = object.version.size.value != 0;
    pick.hash = pick.provisional ? names.name(object.key, object.version, 0, object.version.size)
                                 : sha256({});
    any = any || pick.provisional;
  }
  return any;
}

// Said before anything is read: nobody wants to hear of it hours later.
Status can_be_kept(io::Files& files, const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  const auto try_it = [&]() -> Status {
    const auto there = files.stat(path);
    if (there && there->is_directory) return error(Code::kInvalid, "{} is a directory", path);
    TRY(files.make_directories(folder.empty() ? "/" : folder, 0700));
    const std::string probe = path + ".probe";
    TRY(files.open(probe, O_WRONLY | O_CREAT, 0600));
    return files.remove(probe);
  };
  const Status kept = try_it();
  if (kept) return {};
  return error(kept.error().code,
               "the manifest cannot be kept: {}; name another folder with the setting "
               "manifest_dir, or a file with --manifest",
               kept.error().message);
}

}  // namespace

std::string manifest_folder(const Settings& settings) {
  if (!settings.manifest_dir.empty()) return settings.manifest_dir;
  const auto data = io::environment("XDG_DATA_HOME");
  const std::string home = io::environment("HOME").value_or("");
  return (data && !data->empty() ? *data : home + "/.local/share") + "/quiver/manifests";
}

std::string manifest_path_for(const Settings& settings, const OriginSettings& origin,
                              Layout layout) {
  std::string url = origin.url;
  while (url.size() > 1 && url.ends_with('/')) url.pop_back();
  const std::string what = fmt::format("{}\n{}\n{}", origin.endpoint, url,
                                       layout == Layout::kImageFolder ? "image_folder" : "files");
  return fmt::format("{}/{}.qvm", manifest_folder(settings),
                     sha256(as_bytes(what)).hex().substr(0, 32));
}

Result<DigestReport> digest(const DigestOptions& options, Environment environment,
                            const std::function<void(const DigestProgress&)>& progress,
                            std::stop_token stop) {
  DigestReport report;
  report.manifest_path = options.manifest_path.empty()
                             ? manifest_path_for(options.settings, options.origin, options.layout)
                             : options.manifest_path;
  TRY(check_directory(environment.files, options.origin.url));
  if (const std::string warning = trust_warning(options.origin); !warning.empty()) {
    log(environment.log, LogLevel::kWarning, "{}", warning);
  }
  TRY(can_be_kept(environment.files, report.manifest_path));
  const auto previous =
      PreviousDigest::open(environment.files, report.manifest_path, options.origin.url);
  const OriginContext context{environment.files, environment.http,   environment.clock, 0, {},
                              nullptr,           options.credentials};
  const std::unique_ptr<Origin> origin = TRY(open_origin(options.origin, context));
  Listing listing = TRY(list_folder(options, *origin, progress, stop));
  Bytes total, to_hash;
  for (const Pick& pick : listing.picks) total += listing.objects[pick.object].version.size;
  to_hash = options.fresh ? total : keep_unchanged(listing, previous);

  Counts counts;
  const bool names = options.lazy && TRY(name_unread(options, environment.files, listing));
  if (names) report.manifest_path = lazy_manifest_path(report.manifest_path);
  std::unique_ptr<DigestKeeper> keeper;
  if (!options.lazy && !options.daemon_program.empty() && options.settings.enabled &&
      to_hash.value != 0) {
    keeper = DigestKeeper::connect(options, environment, total);
  }
  if (!options.lazy) {
    Digester digester(options, environment, *origin, listing, keeper.get());
    counts = TRY(digester.run(progress, stop));
  }

  const std::string file = TRY(build_manifest(listing, options.origin.url));
  TRY(io::write_file_atomically(environment.files, report.manifest_path, as_bytes(file)));
  const auto manifest = TRY(Manifest::open(environment.files, report.manifest_path, true));
  report.public_id = public_id(manifest->root());
  report.items = manifest->size();
  report.classes = manifest->class_count();
  report.directory_markers = listing.directory_markers;
  report.not_images = listing.not_images;
  report.downloaded = counts.downloaded;
  report.kept = counts.kept;
  report.bytes = manifest->total_bytes();
  report.downloaded_bytes = counts.downloaded_bytes;
  compare(report, listing, previous);
  return report;
}

}  // namespace quiver::cache
