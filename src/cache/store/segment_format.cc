#include "cache/store/segment_format.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace quiver::cache {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::string_view kMagic = "QVRINDEX";
constexpr std::size_t kCrcAt = kRowBytes - 4;
constexpr std::size_t kDigits = 8;

template <class T>
void put(RowBytes& row, std::size_t at, const T& value) {
  std::memcpy(row.data() + at, &value, sizeof value);
}

template <class T>
T get(ByteSpan row, std::size_t at) {
  T value;
  std::memcpy(&value, row.data() + at, sizeof value);
  return value;
}

void seal_row(RowBytes& row) {
  put(row, kCrcAt, checksum32(ByteSpan(row).first(kCrcAt)));
}

bool row_is_whole(ByteSpan row) {
  return row.size() == kRowBytes &&
         get<std::uint32_t>(row, kCrcAt) == checksum32(row.first(kCrcAt));
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Takes "key value\n" off the front of the text.
std::optional<std::string_view> take_line(std::string_view& text, std::string_view key) {
  const auto end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view line = text.substr(0, end);
  if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') {
    return std::nullopt;
  }
  text.remove_prefix(end + 1);
  return line.substr(key.size() + 1);
}

}  // namespace

// 0 magic, 8 version u16, 10 pinned u8, 11 band u8, 12 segment u32, 16 length of the group u8,
// 17 group, 52 checksum.
RowBytes encode_header(SegmentId id, const Lane& lane) {
  CHECK(lane.group.size() <= kMaxGroupBytes);
  RowBytes row{};
  std::memcpy(row.data(), kMagic.data(), kMagic.size());
  put(row, 8, static_cast<std::uint16_t>(kStoreVersion));
  put(row, 10, static_cast<std::uint8_t>(lane.pinned));
  put(row, 11, lane.band);
  put(row, 12, id.value);
  put(row, 16, static_cast<std::uint8_t>(lane.group.size()));
  if (!lane.group.empty()) std::memcpy(row.data() + 17, lane.group.data(), lane.group.size());
  seal_row(row);
  return row;
}

Result<Lane> decode_header(ByteSpan row, SegmentId id) {
  if (!row_is_whole(row) || as_text(row.first(kMagic.size())) != kMagic) {
    return error(Code::kCorrupt, "{} does not begin like an index", index_name(id));
  }
  if (const auto version = get<std::uint16_t>(row, 8); version != kStoreVersion) {
    return error(Code::kVersion, "{} has version {}, this program reads {}", index_name(id),
                 version, kStoreVersion);
  }
  const auto group = get<std::uint8_t>(row, 16);
  const auto pinned = get<std::uint8_t>(row, 10);
  if (get<std::uint32_t>(row, 12) != id.value || group > kMaxGroupBytes || pinned > 1) {
    return error(Code::kCorrupt, "{} is the index of another segment", index_name(id));
  }
  return Lane{std::string(as_text(row.subspan(17, group))), pinned == 1,
              get<std::uint8_t>(row, 11)};
}

RowBytes encode_row(const IndexRow& item) {
  RowBytes row{};
  put(row, 0, item.hash.bytes);
  put(row, 32, item.offset);
  put(row, 40, item.length);
  put(row, 48, item.checksum);
  seal_row(row);
  return row;
}

std::optional<IndexRow> decode_row(ByteSpan row) {
  if (!row_is_whole(row)) return std::nullopt;
  IndexRow item;
  item.hash.bytes = get<std::array<std::uint8_t, 32>>(row, 0);
  item.offset = get<std::uint64_t>(row, 32);
  item.length = get<std::uint64_t>(row, 40);
  item.checksum = get<std::uint32_t>(row, 48);
  if (item.offset >= kSegmentBytes || item.length > kSegmentBytes - item.offset) {
    return std::nullopt;
  }
  return item;
}

std::string data_name(SegmentId id) {
  return fmt::format("{:08}.seg", id.value);
}
std::string index_name(SegmentId id) {
  return fmt::format("{:08}.idx", id.value);
}

std::optional<SegmentFile> parse_name(std::string_view name) {
  if (name.size() != kDigits + 4) return std::nullopt;
  const std::string_view digits = name.substr(0, kDigits), suffix = name.substr(kDigits);
  if (suffix != ".seg" && suffix != ".idx") return std::nullopt;
  if (!std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  const auto value = number<std::uint32_t>(digits);
  if (!value || *value >= kSegmentNumbers) return std::nullopt;
  return SegmentFile{SegmentId(*value), suffix == ".idx"};
}

// The pid has a fixed width: it is written over the old one in place.
std::string encode_marker(std::uint64_t pid) {
  return fmt::format("quiver-cache {}\npid {:020}\n", kStoreVersion, pid);
}

Result<Marker> decode_marker(std::string_view text) {
  const auto version = take_line(text, "quiver-cache");
  const auto value = version ? number<std::uint32_t>(*version) : std::nullopt;
  if (!value) return error(Code::kInvalid, "the file quiver-cache is not a cache's marker");
  Marker marker{*value, 0};
  // Who has it may be writing the second line now; it is only for messages.
  if (const auto pid = take_line(text, "pid")) marker.pid = number<std::uint64_t>(*pid).value_or(0);
  return marker;
}

std::string encode_boot(const BootState& s) {
  std::string text =
      fmt::format("quiver-boot {}\nboot {}\nclean {}\nnext {}\nsuspect {}\n", kStoreVersion,
                  s.boot_id, s.clean ? 1 : 0, s.next_segment, s.suspect_below);
  text += fmt::format("check {}\n", checksum32(as_bytes(text)));
  return text;
}

Result<BootState> decode_boot(std::string_view text) {
  const std::string_view all = text;
  const auto version = take_line(text, "quiver-boot"), boot = take_line(text, "boot"),
             clean = take_line(text, "clean"), next = take_line(text, "next"),
             suspect = take_line(text, "suspect");
  const std::size_t checked = all.size() - text.size();
  const auto check = take_line(text, "check");
  if (!version || !boot || !clean || !next || !suspect || !check || !text.empty() ||
      number<std::uint32_t>(*check) != checksum32(as_bytes(all.substr(0, checked)))) {
    return error(Code::kCorrupt, "the file boot is damaged");
  }
  const auto next_number = number<std::uint32_t>(*next), below = number<std::uint32_t>(*suspect);
  if (*version != "1" || !next_number || !below || *next_number > kSegmentNumbers) {
    return error(Code::kCorrupt, "the file boot has values that cannot be");
  }
  return BootState{std::string(*boot), *clean == "1", *next_number, *below};
}

}  // namespace quiver::cache
