// Digest: makes the manifest of what lies at a URL, or renews it. Reads each new or changed object
// once, keeps what passes in the cache.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/quiver_settings.h"
#include "base/result.h"
#include "cache/client/dataset.h"
#include "cache/origin/origin.h"

namespace quiver::cache {

enum class Layout { kImageFolder, kFiles, kWebDataset };
// image_folder, files, webdataset. kInvalid for another name.
std::string_view layout_name(Layout layout);
Result<Layout> layout_of(std::string_view name);

struct DigestProgress {
  std::uint64_t objects_listed = 0, items_done = 0, items_total = 0;
  Bytes bytes_done, bytes_total;
  bool listing = true;
  bool archives = false;  // the items are archives, whose samples are looked for
};

struct DigestOptions {
  OriginSettings origin;
  std::shared_ptr<RenewableCredentials> credentials;  // null: those of `origin`, for good
  Layout layout = Layout::kImageFolder;
  std::vector<std::string> extensions;  // empty: ImageFolder's
  bool allow_empty = false;
  std::string manifest_path;  // empty: manifest_path_for()
  Settings settings;
  std::string daemon_program;   // empty: bytes that pass are not kept
  bool trust_checksums = true;  // the store's own SHA-256 of whole objects saves the download
  bool fresh = false;           // read also what has not changed since the last digest
  bool lazy = false;  // read nothing: the manifest is provisional, beside where the whole one goes
};

struct DigestReport {
  std::string manifest_path;
  std::string public_id;
  std::uint32_t items = 0, classes = 0;
  std::uint64_t directory_markers = 0, left_out = 0, downloaded = 0, kept = 0;
  Bytes bytes, downloaded_bytes;
  bool renewed = false;         // there was a manifest of this address; the rest compares with it
  std::uint64_t unchanged = 0;  // items that kept their hash without being read
  std::uint64_t added = 0, changed = 0, removed = 0;
};

// settings.manifest_dir, else below $XDG_DATA_HOME or the home.
std::string manifest_folder(const Settings& settings);

// Where the manifest of a URL lies by default: <manifest_dir>/<hash of endpoint, URL and
// layout>.qvm
std::string manifest_path_for(const Settings& settings, const OriginSettings& origin,
                              Layout layout);

// `progress` is called from one thread, at most ten times a second and once at the end.
Result<DigestReport> digest(const DigestOptions& options, Environment environment,
                            const std::function<void(const DigestProgress&)>& progress,
                            std::stop_token stop);

}  // namespace quiver::cache
