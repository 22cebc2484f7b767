// Recovery: from what lies on disk after any end, to a catalog. Reads indexes, never data.
#pragma once

#include "cache/store/catalog.h"
#include "cache/store/directory.h"

namespace quiver::cache {

struct Recovered {
  std::uint64_t segments = 0, items = 0;
  std::uint64_t dropped_segments = 0, dropped_rows = 0;
  std::uint64_t unusable_segments = 0;
  std::string why_unusable;  // of the first
};
// The numbers of the segments of which any file is there, ascending.
Result<std::vector<SegmentId>> segment_numbers(const Directory& directory, io::Files& files);
// Adds them to the catalog, all sealed; deletes what is certainly not whole: a file without its
// partner, an index of nobody, a segment without items. What follows a segment's last item is cut
// off. What cannot be opened or read now (no descriptors, a failing disk, modes) is left as it is.
Recovered recover_segments(const std::vector<SegmentId>& numbers, const Directory& directory,
                           io::Files& files, std::uint32_t suspect_below, Catalog& catalog);

}  // namespace quiver::cache
