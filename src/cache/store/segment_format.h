// Bytes of a segment's index file and of the small files of a cache directory. Pure: no I/O.
// docs/formats/segments.md is the specification, golden bytes in tests/vectors freeze it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/result.h"
#include "base/units.h"
#include "cache/store/store.h"

namespace quiver::cache {

inline constexpr std::uint32_t kStoreVersion = 1;
inline constexpr std::size_t kRowBytes = 56;  // of the header row, too
inline constexpr std::size_t kMaxGroupBytes = 35;
inline constexpr std::uint32_t kSegmentNumbers = 1u << 25;  // as a view's word has room for
inline constexpr std::uint64_t kSegmentBytes = std::uint64_t{1} << 36;
inline constexpr std::uint32_t kMaxRows = 1u << 20;  // of one segment

using RowBytes = std::array<std::byte, kRowBytes>;

struct IndexRow {
  Sha256 hash;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t checksum = 0;
  bool operator==(const IndexRow&) const = default;
};

RowBytes encode_header(SegmentId id, const Lane& lane);
// kCorrupt, kVersion; the number in it must be `id`, so that no file stands in for another.
Result<Lane> decode_header(ByteSpan row, SegmentId id);
RowBytes encode_row(const IndexRow& row);
std::optional<IndexRow> decode_row(ByteSpan row);  // nullopt: forgotten, half-written or damaged

std::string data_name(SegmentId id);   // "00000042.seg"
std::string index_name(SegmentId id);  // "00000042.idx"
struct SegmentFile {
  SegmentId id;
  bool index = false;
};
std::optional<SegmentFile> parse_name(std::string_view name);

// The marker: "quiver-cache 1\n", then the pid of who has it, for messages.
std::string encode_marker(std::uint64_t pid);
struct Marker {
  std::uint32_t version = 0;
  std::uint64_t pid = 0;
};
Result<Marker> decode_marker(std::string_view text);

// The boot file: what a start must know about the time before it.
struct BootState {
  std::string boot_id;
  bool clean = false;               // everything was synced and nothing written since
  std::uint32_t next_segment = 0;   // no number from here on has been used
  std::uint32_t suspect_below = 0;  // segments below it are still to be verified
  bool operator==(const BootState&) const = default;
};
std::string encode_boot(const BootState& state);
Result<BootState> decode_boot(std::string_view text);

}  // namespace quiver::cache
