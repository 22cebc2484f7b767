// The bytes of a manifest file: its rows, its header and where each table lies. The specification
// is docs/formats/manifest.md; everything here is private to the folder.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "base/hash.h"
#include "base/result.h"

namespace quiver::cache::format {

static_assert(std::endian::native == std::endian::little, "rows are read in place");

inline constexpr std::array<char, 8> kMagic{'Q', 'V', 'R', 'M', 'A', 'N', 'I', '\n'};
inline constexpr std::uint32_t kVersion = 1;
// Far above any real manifest (10 million items are 1 to 2 GiB) and far below where sums overflow.
inline constexpr std::uint64_t kMaxFileSize = std::uint64_t{1} << 40;

// In the flags of a row, and of a header some row of which has it.
inline constexpr std::uint32_t kProvisionalFlag = 1;

struct ItemRow {
  Sha256 hash;
  std::uint64_t length;
  std::uint64_t key_end;
  std::int32_t label;
  std::uint32_t flags;
};
struct ClassRow {
  std::uint64_t name_end;
};
struct PlaceRow {
  std::uint64_t offset;
  std::uint32_t object;
  std::uint32_t reserved;
};
struct ObjectRow {
  std::uint64_t size;
  std::int64_t mtime_ns;
  std::uint64_t key_end;
  std::uint64_t etag_end;
};
static_assert(sizeof(ItemRow) == 56 && sizeof(ClassRow) == 8);
static_assert(sizeof(PlaceRow) == 16 && sizeof(ObjectRow) == 32);

// In the order in which they lie in the file.
enum TableId : std::size_t {
  kItems,
  kClasses,
  kKeys,
  kClassNames,
  kPlaces,
  kObjects,
  kObjectKeys,
  kEtags,
  kOriginUrl,
  kTableCount
};

struct Table {
  std::uint64_t offset, length;
  bool operator==(const Table&) const = default;
};

struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_size;
  std::uint32_t item_count, object_count, class_count;
  std::uint32_t flags;
  std::uint64_t total_bytes, longest_item;
  std::uint64_t file_size;
  std::array<Table, kTableCount> tables;
  Sha256 root;
  Sha256 places_digest;
  Sha256 header_digest;  // of everything before it
};
static_assert(sizeof(Header) == 296);

// Lays the tables out behind the header from their lengths: the only layout that there is.
void place_tables(Header& header);
ByteSpan table(const Header& header, ByteSpan file, TableId id);
Sha256 content_root(const Header& header, ByteSpan file);
Sha256 places_digest(const Header& header, ByteSpan file);
Sha256 header_digest(const Header& header);

// The header of a file of this size: its own checksum, counts and layout. What passes may be
// mapped: every table lies inside the file.
Status check_header(const Header& header, std::uint64_t file_size, const std::string& name);
// Padding is zero. Cheap; with it and the three digests every bit of the file is accounted for.
Status check_padding(const Header& header, ByteSpan file, const std::string& name);
// One linear pass over all rows, and both digests.
Status check_content(const Header& header, ByteSpan file, const std::string& name);

Error damaged(const std::string& name, std::string_view what);
// A key as it may stand in a message: quoted, cut at 200 bytes, always valid UTF-8 without
// controls.
std::string printable(std::string_view key);

// Row `i` of a table of rows, copied out: the table has no alignment to rely on and another process
// may own the memory.
template <class Row>
Row row_at(ByteSpan rows, std::size_t i) {
  Row row;
  std::memcpy(&row, rows.data() + i * sizeof(Row), sizeof(Row));
  return row;
}

}  // namespace quiver::cache::format
