#include "cache/client/digest.h"

#include <fcntl.h>

#include <algorithm>

#include "cache/client/digest_archives.h"
#include "cache/client/digest_lazy.h"
#include "cache/client/digest_listing.h"
#include "cache/client/digest_parallel.h"
#include "io/process.h"

namespace quiver::cache {
namespace {

constexpr std::uint64_t kWholeRead = std::uint64_t{32} << 20;  // longer objects are read in pieces
constexpr std::uint64_t kPiece = std::uint64_t{16} << 20;
constexpr int kHeadsWithoutChecksum = 32;  // so many in a row, and the store is not asked any more

constexpr std::array<std::string_view, 3> kLayouts{"image_folder", "files", "webdataset"};

struct Counts {
  DigestProgress progress;
  std::uint64_t downloaded = 0, kept = 0;
  Bytes downloaded_bytes;
  int heads_in_vain = 0;
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

  // Hashes every pick, in parallel. The first byte was read after `began`.
  Result<Counts> run(WallTime began, const std::function<void(const DigestProgress&)>& progress,
                     std::stop_token stop);

 private:
  Status hash(Pick& pick, std::string& buffer, std::stop_token stop);
  Status read_young_again(WallTime began, std::stop_token stop);
  Status read(Pick& pick, std::string& buffer, std::stop_token stop);
  void take_version(Pick& pick, ObjectVersion version);
  Result<bool> ask_checksum(Pick& pick, std::stop_token stop);

  const DigestOptions& options_;
  const Environment environment_;
  Origin& origin_;
  Listing& listing_;
  DigestKeeper* const keeper_;
  Guarded<Counts> counts_;
};

Result<Counts> Digester::run(WallTime began,
                             const std::function<void(const DigestProgress&)>& progress,
                             std::stop_token stop) {
  counts_.with([&](Counts& c) {
    c.progress.listing = false;
    c.progress.objects_listed = listing_.objects.size();
    c.progress.items_total = listing_.picks.size();
    for (const Pick& pick : listing_.picks) c.progress.bytes_total += pick.length;
  });
  const auto each = [this](std::size_t i, std::string& buffer, std::stop_token halt) -> Status {
    Pick& pick = listing_.picks[i];
    if (!pick.passed) TRY(hash(pick, buffer, halt));
    counts_.with([&](Counts& c) {
      ++c.progress.items_done;
      c.progress.bytes_done += pick.length;
    });
    return {};
  };
  const auto tick = [&] {
    if (progress) progress(counts_.with([](const Counts& c) { return c.progress; }));
  };
  TRY(in_parallel(listing_.picks.size(), options_.settings.fetch_concurrency, each, tick, stop));
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

Status Digester::hash(Pick& pick, std::string& buffer, std::stop_token stop) {
  if (pick.known) return {};
  ListedObject& object = listing_.objects[pick.object];
  if (pick.length.value == 0) {
    pick.hash = sha256({});
    return {};
  }
  if (pick.piece) return read(pick, buffer, stop);
  if (options_.trust_checksums && TRY(ask_checksum(pick, stop))) return {};
  Status done = read(pick, buffer, stop);
  if (done || done.error().code != Code::kChanged) return done;
  // Overwritten since it was listed: take it as it is now, if it holds still.
  take_version(pick, TRY(origin_.head(object.key, stop)).version);
  return read(pick, buffer, stop);
}

void Digester::take_version(Pick& pick, ObjectVersion version) {
  pick.length = version.size;
  listing_.objects[pick.object].version = std::move(version);
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
    take_version(pick, now.version);
    object.sha256 = now.sha256;
  }
  if (!object.sha256) return false;
  pick.hash = *object.sha256;
  return true;
}

Status Digester::read(Pick& pick, std::string& buffer, std::stop_token stop) {
  const ListedObject& object = listing_.objects[pick.object];
  const std::uint64_t size = pick.length.value;
  const bool whole = size <= kWholeRead;
  buffer.resize(whole ? size : kPiece);
  std::optional<DigestKeeper::LongItem> long_item;
  if (!whole && keeper_ != nullptr) long_item.emplace(keeper_->begin(pick.length));
  bool kept = false;
  Sha256Stream stream;
  for (std::uint64_t at = 0; at < size; at += buffer.size()) {
    const auto out = std::as_writable_bytes(std::span(buffer))
                         .first(std::min<std::uint64_t>(buffer.size(), size - at));
    TRY(origin_.read({object.key, pick.offset + at, object.version}, out, stop));
    stream.update(out);
    const bool last = at + out.size() == size;
    if (last) pick.hash = stream.finish();
    if (long_item) kept = long_item->add(out, last ? std::optional(pick.hash) : std::nullopt);
  }
  if (whole && keeper_ != nullptr) kept = keeper_->keep(pick.hash, as_bytes(buffer));
  counts_.with([&](Counts& c) {
    ++c.downloaded;
    c.kept += kept && !pick.kept ? 1 : 0;
    c.downloaded_bytes += pick.length;
  });
  pick.kept = pick.kept || kept;
  return {};
}

Result<std::string> build_manifest(const Listing& listing, const std::string& origin_url) {
  ManifestBuilder builder(origin_url);
  for (const std::string& name : listing.classes) builder.add_class(name);
  std::size_t last = listing.objects.size();
  std::uint32_t index = 0;
  for (const Pick& pick : listing.picks) {
    const ListedObject& object = listing.objects[pick.object];
    if (pick.object != last) index = builder.add_object(object.key, object.version);
    last = pick.object;
    builder.add_item(pick.hash, pick.length, pick.key, pick.label, index, pick.offset,
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
      to_hash += pick.length;
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
    const auto then = previous.find(pick.key);
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
    pick.provisional = pick.length.value != 0;
    pick.hash = pick.provisional ? names.name(object.key, object.version, pick.offset, pick.length)
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

std::string_view layout_name(Layout layout) {
  return kLayouts[static_cast<std::size_t>(layout)];
}

Result<Layout> layout_of(std::string_view name) {
  const auto at = std::ranges::find(kLayouts, name);
  if (at != kLayouts.end()) return static_cast<Layout>(at - kLayouts.begin());
  return error(Code::kInvalid, "there is no layout '{}'; write image_folder, files or webdataset",
               name);
}

std::string manifest_path_for(const Settings& settings, const OriginSettings& origin,
                              Layout layout) {
  std::string url = origin.url;
  while (url.size() > 1 && url.ends_with('/')) url.pop_back();
  const std::string what = fmt::format("{}\n{}\n{}", origin.endpoint, url, layout_name(layout));
  return fmt::format("{}/{}.qvm", manifest_folder(settings),
                     sha256(as_bytes(what)).hex().substr(0, 32));
}

Result<DigestReport> digest(const DigestOptions& given, Environment environment,
                            const std::function<void(const DigestProgress&)>& progress,
                            std::stop_token stop) {
  DigestOptions options = given;
  DigestReport report;
  report.manifest_path = options.manifest_path.empty()
                             ? manifest_path_for(options.settings, options.origin, options.layout)
                             : options.manifest_path;
  const bool archives = options.layout == Layout::kWebDataset;
  std::vector<std::string> names;
  if (archives) {
    ArchiveAddress address = TRY(archive_address(options.origin.url));
    options.origin.url = std::move(address.folder);
    names = std::move(address.names);
  }
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
  Listing listing = archives ? TRY(list_archives(options, names, *origin, progress, stop))
                             : TRY(list_folder(options, *origin, progress, stop));
                             Bytes total, to_hash;
                             for (const Pick& pick : listing.picks) total += pick.length;
                             to_hash = options.fresh || archives
                                           ? total
                                           : keep_unchanged(listing, previous);
                             std::unique_ptr<DigestKeeper> keeper;
                             if (!options.lazy && !options.daemon_program.empty() &&
                                 options.settings.enabled && to_hash.value != 0) {
                               keeper = DigestKeeper::connect(options, environment, total);
                             }

                             const WallTime began = environment.clock.wall();
                             IndexReport index;
                             if (archives) {
                               index = TRY(index_archives(options, *origin, previous, keeper.get(),
                                                          listing, progress, stop));
                             }
                             Counts counts;
                             if (options.lazy) {
                               const bool any =
                                   TRY(name_unread(options, environment.files, listing));
                               if (any)
                                 report.manifest_path = lazy_manifest_path(report.manifest_path);
                             } else {
                               Digester digester(options, environment, *origin, listing,
                                                 keeper.get());
                               counts = TRY(digester.run(began, progress, stop));
                             }

                             const std::string file =
                                 TRY(build_manifest(listing, options.origin.url));
                             TRY(io::write_file_atomically(environment.files, report.manifest_path,
                                                           as_bytes(file)));
                             const auto manifest =
                                 TRY(Manifest::open(environment.files, report.manifest_path, true));
                             report.public_id = public_id(manifest->root());
                             report.items = manifest->size();
                             report.classes = manifest->class_count();
                             report.directory_markers = listing.directory_markers;
                             report.left_out = listing.left_out;
                             report.downloaded = counts.downloaded + index.downloaded;
                             report.kept = counts.kept + index.kept;
                             report.bytes = manifest->total_bytes();
                             report.downloaded_bytes = counts.downloaded_bytes;
                             report.downloaded_bytes += index.downloaded_bytes;
                             compare(report, listing, previous);
                             return report;
}

}  // namespace quiver::cache
