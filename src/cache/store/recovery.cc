#include "cache/store/recovery.h"

#include <fcntl.h>

#include <algorithm>

#include "cache/store/segment_writer.h"

namespace quiver::cache {
namespace {

constexpr std::size_t kRowsAtOnce = 16384;  // 0.9 MB

struct Files {
  io::Fd data, index;
  io::FileInfo data_info, index_info;
};

Result<Files> open_both(SegmentId id, const Directory& directory, io::Files& files) {
  Files both;
  both.index = TRY(directory.open_index(id, O_RDONLY));
  both.data = TRY(directory.open_data(id, O_RDWR));
  both.index_info = TRY(files.stat(both.index.get()));
  both.data_info = TRY(files.stat(both.data.get()));
  return both;
}

Result<std::vector<std::optional<IndexRow>>> read_rows(const Files& both, io::Files& files) {
  std::vector<std::optional<IndexRow>> rows;
  const std::uint64_t size = both.index_info.size.value;
  const std::uint64_t count =
      std::min<std::uint64_t>(size < kRowBytes ? 0 : size / kRowBytes - 1, kMaxRows);
  rows.reserve(count);
  std::vector<std::byte> bytes(std::min<std::uint64_t>(count, kRowsAtOnce) * kRowBytes);
  while (rows.size() < count) {
    const std::size_t n = std::min<std::uint64_t>(kRowsAtOnce, count - rows.size());
    const auto part = MutableByteSpan(bytes).first(n * kRowBytes);
    const std::size_t got = TRY(files.pread(both.index.get(), part, (rows.size() + 1) * kRowBytes));
    for (std::size_t i = 0; i < got / kRowBytes; ++i) {
      auto row = decode_row(ByteSpan(part).subspan(i * kRowBytes, kRowBytes));
      if (row && row->offset + row->length > both.data_info.size.value) row.reset();
      rows.push_back(row);
    }
    if (got < part.size()) break;
  }
  while (!rows.empty() && !rows.back()) rows.pop_back();
  return rows;
}

// The rows of a segment that has at least one item.
Status recover_one(SegmentId id, const Directory& directory, io::Files& files, bool suspect,
                   Catalog& catalog, Recovered& recovered) {
  Files both = TRY(open_both(id, directory, files));
  RowBytes header{};
  const std::size_t n = TRY(files.pread(both.index.get(), header, 0));
  const Lane lane = TRY(decode_header(ByteSpan(header).first(n), id));
  const auto rows = TRY(read_rows(both, files));
  const auto items =
      static_cast<std::uint64_t>(std::ranges::count_if(rows, [](const auto& r) { return !!r; }));
  recovered.dropped_rows += both.index_info.size.value / kRowBytes - 1 - items;
  if (items == 0) return error(Code::kNotFound, "segment {} has no items", id.value);
  const std::uint64_t end = rows.back()->offset + rows.back()->length;
  // Not every system lets go of it; then it counts, and goes with the segment.
  if (both.data_info.size.value > end && files.truncate(both.data.get(), end)) {
    both.data_info = TRY(files.stat(both.data.get()));
  }
  catalog.add_segment(id, lane, false);
  catalog.reserve_rows(id, rows.size());
  for (const auto& row : rows) catalog.recover_row(id, row, suspect);
  catalog.set_allocated(
      id, occupied(both.data_info, directory.unit()) + occupied(both.index_info, directory.unit()));
  recovered.items += items;
  ++recovered.segments;
  return {};
}

// A file is missing, or what was read is not an index. Anything else may be better tomorrow.
bool certainly_broken(const Error& e) {
  return e.code == Code::kNotFound || e.code == Code::kCorrupt;
}

}  // namespace

Result<std::vector<SegmentId>> segment_numbers(const Directory& directory, io::Files& files) {
  std::vector<SegmentId> numbers;
  for (const auto& entry : TRY(files.list(directory.segments_path()))) {
    if (const auto file = parse_name(entry.name); file && !entry.is_directory) {
      numbers.push_back(file->id);
    }
  }
  std::ranges::sort(numbers);
  const auto [first, last] = std::ranges::unique(numbers);
  numbers.erase(first, last);
  return numbers;
}

Recovered recover_segments(const std::vector<SegmentId>& numbers, const Directory& directory,
                           io::Files& files, std::uint32_t suspect_below, Catalog& catalog) {
  Recovered recovered;
  Bytes indexes;
  for (const SegmentId id : numbers) {
    if (const auto info = files.stat(directory.index_path(id))) indexes += info->size;
  }
  catalog.expect_items(indexes.value / kRowBytes);
  for (const SegmentId id : numbers) {
    const bool suspect = id.value < suspect_below;
    const Status whole = recover_one(id, directory, files, suspect, catalog, recovered);
    if (whole) continue;
    if (certainly_broken(whole.error())) {
      ++recovered.dropped_segments;
      const bool gone = files.remove(directory.index_path(id)).has_value() &&
                        files.remove(directory.data_path(id)).has_value();
      if (gone) continue;
    }
    if (recovered.unusable_segments++ == 0) recovered.why_unusable = whole.error().message;
    Bytes occupies;
    for (const auto& path : {directory.index_path(id), directory.data_path(id)}) {
      if (const auto info = files.stat(path)) occupies += occupied(*info, directory.unit());
    }
    catalog.add_unusable(id, occupies);
  }
  return recovered;
}

}  // namespace quiver::cache
