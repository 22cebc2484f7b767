#include "cache/manifest/image_folder.h"

#include <algorithm>
#include <set>

#include "cache/manifest/format.h"

namespace quiver::cache {

namespace {

// The order of sorted(os.walk(folder)): directories by their whole path, then names. Comparing
// whole keys would put "c/a/x" after "c/a-b/x"; os.walk's paths have no final '/', so it comes
// after "c/a".
struct Parts {
  std::string_view directory, name;
  explicit Parts(std::string_view key) {
    std::size_t slash = key.rfind('/');
    directory = slash == std::string_view::npos ? std::string_view{} : key.substr(0, slash);
    name = slash == std::string_view::npos ? key : key.substr(slash + 1);
  }
  auto operator<=>(const Parts&) const = default;
};

bool is_marker(const ListedKey& k) {
  return k.size == 0 && (k.key.empty() || k.key.back() == '/');
}

// The first path component; empty for a file at the root level.
std::string_view class_of(std::string_view key) {
  std::size_t slash = key.find('/');
  return slash == std::string_view::npos ? std::string_view{} : key.substr(0, slash);
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool has_extension(std::string_view key, const std::vector<std::string_view>& extensions) {
  return std::any_of(extensions.begin(), extensions.end(), [&](std::string_view e) {
    return key.size() >= e.size() &&
           std::equal(e.begin(), e.end(), key.end() - static_cast<std::ptrdiff_t>(e.size()),
                      [](char a, char b) { return lower(a) == lower(b); });
  });
}

std::string join(const std::vector<std::string_view>& words) {
  std::string out;
  for (std::string_view w : words) out += fmt::format("{}{}", out.empty() ? "" : " ", w);
  return out;
}

// The classes from `empty` as a message can hold them: the first few, and how many more.
std::string some_of(const std::vector<std::string_view>& empty) {
  constexpr std::size_t kShown = 5;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, empty.size()); ++i) {
    out += (i == 0 ? "" : ", ") + format::printable(empty[i]);
  }
  if (empty.size() > kShown) out += fmt::format(" and {} more", empty.size() - kShown);
  return out;
}

Status check_classes(const ImageFolderListing& listing, std::string_view root_name,
                     const std::vector<std::string_view>& extensions, bool allow_empty) {
  if (listing.classes.empty()) {
    return error(Code::kInvalid,
                 "there is no class folder in {}; name the folder above the class folders "
                 "(root/class/image.jpg), or use a dataset without classes",
                 format::printable(root_name));
  }
  std::vector<bool> has_file(listing.classes.size());
  for (const LabelledKey& s : listing.samples) has_file[static_cast<std::size_t>(s.label)] = true;
  std::vector<std::string_view> empty;
  for (std::size_t i = 0; i < has_file.size(); ++i) {
    if (!has_file[i]) empty.push_back(listing.classes[i]);
  }
  if (empty.empty() || allow_empty) return {};
  return error(
      Code::kInvalid,
      "in {} there is no valid file for the classes {} (valid: {}); remove these folders, or "
      "pass allow_empty=True",
      format::printable(root_name), some_of(empty), join(extensions));
}

}  // namespace

std::vector<std::string_view> image_extensions() {
  return {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};
}

Result<ImageFolderListing> image_folder(const std::vector<ListedKey>& keys,
                                        std::string_view root_name,
                                        const std::vector<std::string_view>& extensions,
                                        bool allow_empty) {
  ImageFolderListing out;
  std::set<std::string_view> classes;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::string_view name = class_of(keys[i].key);
    if (!name.empty()) classes.insert(name);
    if (is_marker(keys[i])) {
      ++out.directory_markers;
    } else if (name.empty()) {
      ++out.outside_classes;
    } else if (!has_extension(keys[i].key, extensions)) {
      ++out.not_images;
    } else {
      out.samples.push_back({i, 0});
    }
  }
  out.classes.assign(classes.begin(), classes.end());
  for (LabelledKey& s : out.samples) {
    auto at = std::lower_bound(out.classes.begin(), out.classes.end(), class_of(keys[s.index].key));
    s.label = static_cast<std::int32_t>(at - out.classes.begin());
  }
  std::sort(out.samples.begin(), out.samples.end(),
            [&](const LabelledKey& a, const LabelledKey& b) {
              if (a.label != b.label) return a.label < b.label;
              return Parts(keys[a.index].key) < Parts(keys[b.index].key);
            });
  if (Status s = check_classes(out, root_name, extensions, allow_empty); !s) {
    return std::move(s).error();
  }
  return out;
}

Result<FlatListing> flat_folder(const std::vector<ListedKey>& keys, std::string_view root_name) {
  FlatListing out;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (is_marker(keys[i])) {
      ++out.directory_markers;
    } else {
      out.samples.push_back(i);
    }
  }
  if (out.samples.empty()) {
    return error(Code::kInvalid, "there is no file in {}; check its name and its last folder",
                 format::printable(root_name));
  }
  std::sort(out.samples.begin(), out.samples.end(),
            [&](std::size_t a, std::size_t b) { return Parts(keys[a].key) < Parts(keys[b].key); });
  return out;
}

}  // namespace quiver::cache
