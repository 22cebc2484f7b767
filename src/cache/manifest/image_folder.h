// The rules of torchvision's ImageFolder as a pure function over keys: a class is a first path
// component, classes are sorted, a class's files are in the order of sorted(os.walk(class)).
// Keys are opaque bytes, compared as bytes (for UTF-8 that is Python's order). A directory marker
// makes a class folder, as the empty directory that it stands for does. A key that begins with '/'
// has no first component and counts as outside any class.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quiver::cache {

struct LabelledKey {
  std::size_t index;   // into the input
  std::int32_t label;  // index into classes
};

struct ImageFolderListing {
  std::vector<std::string> classes;   // sorted
  std::vector<LabelledKey> samples;   // in torchvision's order: class, then directory, then name
  std::size_t not_images = 0;         // files whose extension is not one of `extensions`
  std::size_t directory_markers = 0;  // zero-byte keys that end in '/': a folder, not a file
  std::size_t outside_classes = 0;    // files that lie in no class folder: ignored, as there
};

struct ListedKey {
  std::string_view key;  // relative to the dataset's root, '/' between parts
  std::uint64_t size;
};

// .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp, compared without case.
std::vector<std::string_view> image_extensions();

// kInvalid, naming the folder and the cure, when there is no class folder or a class without a
// valid file (torchvision's rule; `allow_empty` as there).
Result<ImageFolderListing> image_folder(const std::vector<ListedKey>& keys,
                                        std::string_view root_name,
                                        const std::vector<std::string_view>& extensions,
                                        bool allow_empty = false);

struct FlatListing {
  std::vector<std::size_t> samples;  // indices into the input, by directory, then name
  std::size_t directory_markers = 0;
};

// All files without labels, for a map-style dataset. kInvalid when there is none.
Result<FlatListing> flat_folder(const std::vector<ListedKey>& keys, std::string_view root_name);

}  // namespace quiver::cache
