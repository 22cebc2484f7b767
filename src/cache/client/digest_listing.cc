#include "cache/client/digest_listing.h"

#include "cache/manifest/image_folder.h"

namespace quiver::cache {

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

namespace {

void pick(Listing& listing, std::size_t index, std::int32_t label) {
  const ListedObject& object = listing.objects[index];
  listing.picks.push_back(
      {.object = index, .label = label, .key = object.key, .length = object.version.size});
}

}  // namespace

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
  if (options.layout != Layout::kImageFolder) {
    const FlatListing flat = TRY(flat_folder(keys, origin.url()));
    listing.directory_markers = flat.directory_markers;
    for (const std::size_t index : flat.samples) pick(listing, index, kNoLabel);
    return listing;
  }
  std::vector<std::string_view> extensions(options.extensions.begin(), options.extensions.end());
  if (extensions.empty()) extensions = image_extensions();
  ImageFolderListing folder =
      TRY(image_folder(keys, origin.url(), extensions, options.allow_empty));
  listing.directory_markers = folder.directory_markers;
  listing.left_out = folder.not_images;
  listing.classes = std::move(folder.classes);
  for (const LabelledKey& sample : folder.samples) {
    pick(listing, sample.index, sample.label);
  }
  return listing;
}

}  // namespace quiver::cache
