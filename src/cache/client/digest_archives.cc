#include "cache/client/digest_archives.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "cache/client/archive_window.h"
#include "cache/client/digest_parallel.h"
#include "cache/manifest/image_folder.h"
#include "cache/manifest/web_sample.h"

namespace quiver::cache {
namespace {

constexpr std::string_view kArchive = ".tar";
constexpr std::uint64_t kMostNames = 1'000'000;

Error bad_braces(const std::string& url) {
  return error(Code::kInvalid,
               "{}: braces name a range of numbers, as in train-{{000..099}}.tar, of at most {} "
               "archives; name the folder for all that are in it",
               url, kMostNames);
}

std::optional<std::uint64_t> number_of(std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(digits.begin(), digits.end(), value);
  const bool all = problem == std::errc{} && end == digits.end();
  return all ? std::optional(value) : std::nullopt;
}

// The names that a pattern stands for; its ranges vary from the last to the first.
Result<std::vector<std::string>> expand(const std::string& pattern, const std::string& url) {
  const std::size_t open = pattern.find('{');
  if (open == pattern.npos) return std::vector{pattern};
  const std::size_t close = pattern.find('}', open), dots = pattern.find("..", open);
  if (close == pattern.npos || dots == pattern.npos || dots > close) return bad_braces(url);
  const std::string first = pattern.substr(open + 1, dots - open - 1);
  const auto from = number_of(first);
  const auto to = number_of(std::string_view(pattern).substr(dots + 2, close - dots - 2));
  if (!from || !to || *from > *to || *to - *from >= kMostNames) return bad_braces(url);
  const std::size_t width = first.size() > 1 && first.front() == '0' ? first.size() : 0;
  const auto rest = TRY(expand(pattern.substr(close + 1), url));
  if (rest.size() * (*to - *from + 1) > kMostNames) return bad_braces(url);
  std::vector<std::string> names;
  for (std::uint64_t n = *from; n <= *to; ++n) {
    for (const std::string& end : rest) {
      names.push_back(fmt::format("{}{:0>{}}{}", pattern.substr(0, open), n, width, end));
    }
  }
  return names;
}

// The samples of one archive, in its order.
struct Found {
  std::vector<Pick> picks;
  std::string keys;  // one behind the other
  std::vector<std::size_t> key_ends;
  std::unordered_set<std::string> stems;

  void add(Pick pick, std::string_view key) {
    keys += key;
    key_ends.push_back(keys.size());
    picks.push_back(pick);
  }
};

class ArchiveIndexer {
 public:
  ArchiveIndexer(const DigestOptions& options, Origin& origin, const PreviousDigest& previous,
                 DigestKeeper* keeper, Listing& listing)
      : options_(options),
        origin_(origin),
        previous_(previous),
        keeper_(keeper),
        listing_(listing),
        local_(local_path(origin.url()).has_value()),
        found_(listing.picks.size()) {
    find_previous();
  }

  Result<IndexReport> run(const std::function<void(const DigestProgress&)>& progress,
                          std::stop_token stop);

 private:
  struct Rows {
    std::uint32_t first, end;  // items
  };
  struct State {
    IndexReport report;
    DigestProgress progress;
  };
  void find_previous();
  bool take_previous(std::size_t archive);
  Status index(std::size_t archive, std::string& memory, std::stop_token stop);
  Status scan(std::size_t archive, std::string& memory, std::stop_token stop);
  void add(std::size_t archive, const WebSample& sample, const ArchiveWindow& window);
  void replace_archives();

  const DigestOptions& options_;
  Origin& origin_;
  const PreviousDigest& previous_;
  DigestKeeper* const keeper_;
  Listing& listing_;
  const bool local_;
  std::vector<Found> found_;                         // by archive; each is one thread's at a time
  std::unordered_map<std::string_view, Rows> rows_;  // of the last digest, by archive
  Guarded<State> state_;
};

void ArchiveIndexer::find_previous() {
  const Manifest* const manifest = previous_.manifest();
  if (manifest == nullptr || options_.fresh) return;
  for (std::uint32_t i = 0; i < manifest->size(); ++i) {
    const Item item = manifest->item(ItemId(i));
    const std::string_view archive = manifest->object(item.object).key;
    if (item.key == archive) continue;  // a file as a whole: another layout's
    rows_.try_emplace(archive, Rows{i, i}).first->second.end = i + 1;
  }
}

// True when the archive is the one that was digested: its samples keep their hashes.
bool ArchiveIndexer::take_previous(std::size_t archive) {
  const Pick& whole = listing_.picks[archive];
  const auto rows = rows_.find(whole.key);
  if (rows == rows_.end()) return false;
  const Manifest& manifest = *previous_.manifest();
  const std::uint32_t object = manifest.item(ItemId(rows->second.first)).object;
  const ObjectVersion& version = listing_.objects[whole.object].version;
  if (!previous_.is_still(manifest.object(object), version)) return false;
  for (std::uint32_t i = rows->second.first; i < rows->second.end; ++i) {
    const Item item = manifest.item(ItemId(i));
    found_[archive].add({.object = whole.object,
                         .offset = item.offset,
                         .length = item.length,
                         .hash = *item.hash,
                         .piece = true,
                         .known = true},
                        item.key);
  }
  return true;
}

Status ArchiveIndexer::index(std::size_t archive, std::string& memory, std::stop_token stop) {
  if (take_previous(archive)) return {};
  ListedObject& object = listing_.objects[listing_.picks[archive].object];
  Status done = scan(archive, memory, stop);
  if (done || done.error().code != Code::kChanged) return done;
  // Overwritten since it was listed: take it as it is now, if it holds still.
  object.version = TRY(origin_.head(object.key, stop))
  .version;
  found_[archive] = {};
  return scan(archive, memory, stop);
}

Status ArchiveIndexer::scan(std::size_t archive, std::string& memory, std::stop_token stop) {
  const ListedObject& object = listing_.objects[listing_.picks[archive].object];
  TarReader reader(object.key, object.version.size.value);
  SampleGrouper grouper;
  ArchiveWindow window(origin_, object, !options_.lazy, local_, memory);
  std::uint64_t behind = 0;  // the last member
  while (const auto need = reader.need()) {
    const std::uint64_t keep = options_.lazy ? need->offset : grouper.open_since().value_or(behind);
    const ByteSpan bytes = TRY(window.get(need->offset, need->length, keep, stop));
    const auto member = TRY(reader.give(bytes));
    if (!member) continue;
    if (const auto sample = grouper.add(*member)) add(archive, *sample, window);
    behind = member->end();
    if (stop.stop_requested()) return error(Code::kCancelled, "the digest was interrupted");
  }
  if (const auto sample = grouper.finish()) add(archive, *sample, window);
  found_[archive].stems.clear();
  state_.with([&](State& s) { s.report.downloaded_bytes += window.read(); });
  return {};
}

void ArchiveIndexer::add(std::size_t archive, const WebSample& sample,
                         const ArchiveWindow& window) {
  const Pick& whole = listing_.picks[archive];
  Found& found = found_[archive];
  Pick pick{.object = whole.object,
            .offset = sample.begin,
            .length = Bytes(sample.end - sample.begin),
            .piece = true};
  const auto bytes = window.held(pick.offset, pick.length.value);
  if (bytes && !options_.lazy) {
    pick.hash = sha256(*bytes);
    pick.passed = true;
    pick.kept = keeper_ != nullptr && keeper_->keep(pick.hash, *bytes);
  }
  // A stem may come again further on: another sample, which needs a key of its own.
  const bool again = !found.stems.insert(sample.stem).second;
  found.add(pick, fmt::format("{}/{}{}", whole.key, sample.stem,
                              again ? fmt::format("@{}", sample.begin) : ""));
  state_.with([&](State& s) {
    s.progress.bytes_done += pick.length;
    s.report.downloaded += pick.passed ? 1 : 0;
    s.report.kept += pick.kept ? 1 : 0;
  });
}

Result<IndexReport> ArchiveIndexer::run(const std::function<void(const DigestProgress&)>& progress,
                                        std::stop_token stop) {
  state_.with([&](State& s) {
    s.progress.listing = false;
    s.progress.archives = true;
    s.progress.objects_listed = listing_.objects.size();
    s.progress.items_total = listing_.picks.size();
    for (const Pick& pick : listing_.picks) s.progress.bytes_total += pick.length;
  });
  const auto each = [&](std::size_t archive, std::string& memory, std::stop_token halt) -> Status {
    TRY(index(archive, memory, halt));
    state_.with([](State& s) { ++s.progress.items_done; });
    return {};
  };
  const auto tick = [&] {
    if (progress) progress(state_.with([](const State& s) { return s.progress; }));
  };
  TRY(in_parallel(found_.size(), options_.settings.fetch_concurrency, each, tick, stop));
  replace_archives();
  if (listing_.picks.empty()) {
    return error(Code::kInvalid,
                 "the archives of {} have no sample: files with a name and an extension, such as "
                 "0001.jpg",
                 origin_.url());
  }
  return state_.with([](const State& s) { return s.report; });
}

void ArchiveIndexer::replace_archives() {
  listing_.picks.clear();
  for (Found& found : found_) {
    const std::string_view keys = listing_.keys.emplace_back(std::move(found.keys));
    std::size_t begin = 0;
    for (std::size_t i = 0; i < found.picks.size(); ++i) {
      Pick& pick = listing_.picks.emplace_back(found.picks[i]);
      pick.key = keys.substr(begin, found.key_ends[i] - begin);
      begin = found.key_ends[i];
    }
    found = {};
  }
}

}  // namespace

Result<ArchiveAddress> archive_address(const std::string& url) {
  if (!url.ends_with(kArchive)) return ArchiveAddress{url, {}};
  const std::size_t slash = url.rfind('/', url.find('{'));
  if (slash == url.npos) return ArchiveAddress {
      ".", TRY(expand(url, url))
    };
  const std::string folder = slash == 0 ? "/" : url.substr(0, slash);
  return ArchiveAddress {
    folder, TRY(expand(url.substr(slash + 1), url))
  };
}

Result<Listing> list_archives(const DigestOptions& options, const std::vector<std::string>& names,
                              Origin& origin,
                              const std::function<void(const DigestProgress&)>& progress,
                              std::stop_token stop) {
  if (names.empty()) {
    Listing listing = TRY(list_folder(options, origin, progress, stop));
    listing.left_out += std::erase_if(
        listing.picks, [](const Pick& pick) { return !pick.key.ends_with(kArchive); });
    if (!listing.picks.empty()) return listing;
    return error(Code::kInvalid,
                 "there is no archive (.tar) at {}; name the folder that has them; compressed ones "
                 "(.tar.gz) must be unpacked",
                 origin.url());
  }
  Listing listing;
  listing.objects.resize(names.size());
  const auto each = [&](std::size_t i, std::string&, std::stop_token halt) -> Status {
    listing.objects[i] = TRY(origin.head(names[i], halt));
    return {};
  };
  TRY(in_parallel(
      names.size(), options.settings.fetch_concurrency, each, [] {}, stop));
  for (std::size_t i = 0; i < names.size(); ++i) {
    listing.picks.push_back(
        {.object = i, .key = listing.objects[i].key, .length = listing.objects[i].version.size});
  }
  return listing;
}

Result<IndexReport> index_archives(const DigestOptions& options, Origin& origin,
                                   const PreviousDigest& previous, DigestKeeper* keeper,
                                   Listing& listing,
                                   const std::function<void(const DigestProgress&)>& progress,
                                   std::stop_token stop) {
  return ArchiveIndexer(options, origin, previous, keeper, listing).run(progress, stop);
}

}  // namespace quiver::cache
