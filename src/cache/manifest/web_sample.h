// Samples of a tar archive, as the `webdataset` package makes them: the files that follow one
// another and have one stem. Also how the bytes of one are taken apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "cache/manifest/tar.h"

namespace quiver::cache {

struct SplitName {
  std::string_view stem;       // folders included
  std::string_view extension;  // all of them, without the first dot; may be empty
};

// webdataset's base_plus_ext, ^((?:.*/|)[^.]+)[.]([^/]*)$ in Python's re. "a.b/1.x.png" is "a.b/1"
// and "x.png"; nothing where there is no such stem: "x", ".hidden".
std::optional<SplitName> base_plus_ext(std::string_view name);

// Nothing for a member that webdataset passes by: no file, no stem, or below a "__name__".
std::optional<SplitName> file_of_sample(const TarMember& member);

// One sample: bytes [begin, end) of its archive, from the first header of its first file to the
// last byte of its last, so that these bytes alone say what it has.
struct WebSample {
  std::string stem;
  std::uint64_t begin = 0, end = 0;
};

// Groups members, which it is given in order. One archive, one thread.
class SampleGrouper {
 public:
  // The sample that ends before this member, if one does.
  std::optional<WebSample> add(const TarMember& member);
  // The last one, at the end of the archive.
  std::optional<WebSample> finish() { return std::exchange(open_, std::nullopt); }
  // Where the sample begins that may still grow.
  std::optional<std::uint64_t> open_since() const {
    return open_ ? std::optional(open_->begin) : std::nullopt;
  }

 private:
  std::optional<WebSample> open_;
};

struct SampleFile {
  std::string extension;
  ByteSpan bytes;  // within the item's
};
struct SampleFiles {
  std::string stem;
  std::vector<SampleFile> files;  // in the archive's order
};

// What an item has, from its bytes alone. `name` is the item's, for messages. kCorrupt where they
// are not of one sample.
Result<SampleFiles> take_apart(ByteSpan item, std::string_view name);

}  // namespace quiver::cache
