#include "cache/manifest/format.h"

#include <algorithm>

namespace quiver::cache::format {

namespace {

constexpr std::string_view kContentTag{"quiver manifest content 1\0", 26};
constexpr std::string_view kPlacesTag{"quiver manifest places 1\0", 25};

std::uint64_t align8(std::uint64_t n) {
  return (n + 7) & ~std::uint64_t{7};
}

template <class T>
void add_integer(Sha256Stream& digest, T value) {
  digest.update(std::as_bytes(std::span(&value, 1)));
}

bool row_lengths_fit(const Header& h) {
  return h.tables[kItems].length == std::uint64_t{h.item_count} * sizeof(ItemRow) &&
         h.tables[kClasses].length == std::uint64_t{h.class_count} * sizeof(ClassRow) &&
         h.tables[kPlaces].length == std::uint64_t{h.item_count} * sizeof(PlaceRow) &&
         h.tables[kObjects].length == std::uint64_t{h.object_count} * sizeof(ObjectRow);
}

Status check_items(const Header& h, ByteSpan file, const std::string& name) {
  ByteSpan items = table(h, file, kItems), places = table(h, file, kPlaces);
  ByteSpan objects = table(h, file, kObjects);
  std::uint64_t key_end = 0, total = 0, longest = 0;
  for (std::size_t i = 0; i < h.item_count; ++i) {
    auto item = row_at<ItemRow>(items, i);
    auto place = row_at<PlaceRow>(places, i);
    bool sound = item.key_end >= key_end && item.label >= -1 && (item.flags & ~h.flags) == 0 &&
                 (item.label < 0 || static_cast<std::uint32_t>(item.label) < h.class_count) &&
                 place.object < h.object_count && place.reserved == 0;
    if (sound) {
      std::uint64_t size = row_at<ObjectRow>(objects, place.object).size;
      sound = place.offset <= size && item.length <= size - place.offset &&
              item.length <= ~std::uint64_t{0} - total;
    }
    if (!sound) return damaged(name, fmt::format("item {} is out of bounds", i));
    key_end = item.key_end;
    total += item.length;
    longest = std::max(longest, item.length);
  }
  if (key_end != h.tables[kKeys].length) return damaged(name, "the keys do not end with the last");
  if (total != h.total_bytes || longest != h.longest_item) {
    return damaged(name, "its totals do not match its items");
  }
  return {};
}

Status check_names(const Header& h, ByteSpan file, const std::string& name) {
  std::uint64_t name_end = 0, key_end = 0, etag_end = 0;
  for (std::size_t i = 0; i < h.class_count; ++i) {
    auto row = row_at<ClassRow>(table(h, file, kClasses), i);
    if (row.name_end < name_end) return damaged(name, fmt::format("class {} is out of bounds", i));
    name_end = row.name_end;
  }
  for (std::size_t i = 0; i < h.object_count; ++i) {
    auto row = row_at<ObjectRow>(table(h, file, kObjects), i);
    if (row.key_end < key_end || row.etag_end < etag_end) {
      return damaged(name, fmt::format("object {} is out of bounds", i));
    }
    key_end = row.key_end;
    etag_end = row.etag_end;
  }
  if (name_end != h.tables[kClassNames].length || key_end != h.tables[kObjectKeys].length ||
      etag_end != h.tables[kEtags].length) {
    return damaged(name, "its names do not end with the last");
  }
  return {};
}

// The length of the UTF-8 sequence at the start of `s`, or 0 when there is none.
std::size_t utf8_length(std::string_view s) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  unsigned char first = byte(0);
  std::size_t n = first < 0x80   ? 1
                  : first < 0xC2 ? 0
                  : first < 0xE0 ? 2
                  : first < 0xF0 ? 3
                  : first < 0xF5 ? 4
                                 : 0;
  if (n == 0 || n > s.size()) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  bool bad = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
             (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F);
  return bad ? 0 : n;
}

}  // namespace

void place_tables(Header& header) {
  std::uint64_t at = sizeof(Header);
  for (Table& t : header.tables) {
    t.offset = at;
    at = align8(at + t.length);
  }
  header.file_size = at;
}

ByteSpan table(const Header& header, ByteSpan file, TableId id) {
  const Table& t = header.tables[id];
  return file.subspan(t.offset, t.length);
}

Sha256 content_root(const Header& h, ByteSpan file) {
  Sha256Stream digest;
  digest.update(as_bytes(kContentTag));
  add_integer(digest, h.item_count);
  add_integer(digest, h.class_count);
  add_integer(digest, h.tables[kKeys].length);
  add_integer(digest, h.tables[kClassNames].length);
  for (TableId id : {kItems, kClasses, kKeys, kClassNames}) digest.update(table(h, file, id));
  return digest.finish();
}

Sha256 places_digest(const Header& h, ByteSpan file) {
  Sha256Stream digest;
  digest.update(as_bytes(kPlacesTag));
  add_integer(digest, h.item_count);
  add_integer(digest, h.object_count);
  for (TableId id : {kObjectKeys, kEtags, kOriginUrl}) add_integer(digest, h.tables[id].length);
  for (TableId id : {kPlaces, kObjects, kObjectKeys, kEtags, kOriginUrl}) {
    digest.update(table(h, file, id));
  }
  return digest.finish();
}

Sha256 header_digest(const Header& header) {
  return sha256(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_digest)));
}

Status check_header(const Header& h, std::uint64_t file_size, const std::string& name) {
  if (h.magic != kMagic) {
    return error(Code::kInvalid,
                 "{} is not a manifest; digest the dataset again or name another file",
                 printable(name));
  }
  if (h.version != kVersion) {
    return error(
        Code::kVersion,
        "{} is a manifest of version {} and this Quiver reads version {}; digest the dataset "
        "again, or use the Quiver that wrote it",
        printable(name), h.version, kVersion);
  }
  if (h.header_digest != header_digest(h)) return damaged(name, "its header's checksum is wrong");
  if (h.file_size != file_size) {
    return damaged(name, fmt::format("it has {} of {} bytes", file_size, h.file_size));
  }
  Header expected = h;
  bool sane = file_size <= kMaxFileSize && row_lengths_fit(h) && h.header_size == sizeof(Header) &&
              (h.flags & ~kProvisionalFlag) == 0 && h.item_count > 0;
  for (const Table& t : h.tables) sane = sane && t.length <= file_size;
  if (sane) place_tables(expected);
  if (!sane || expected.tables != h.tables || expected.file_size != file_size) {
    return damaged(name, "its tables do not fit");
  }
  return {};
}

Status check_padding(const Header& h, ByteSpan file, const std::string& name) {
  for (const Table& t : h.tables) {
    std::uint64_t end = t.offset + t.length;
    for (std::byte b : file.subspan(end, align8(end) - end)) {
      if (b != std::byte{0}) return damaged(name, "its padding is not zero");
    }
  }
  return {};
}

Status check_content(const Header& h, ByteSpan file, const std::string& name) {
  if (content_root(h, file) != h.root) return damaged(name, "its content's checksum is wrong");
  if (places_digest(h, file) != h.places_digest)
    return damaged(name, "its places' checksum is wrong");
  if (Status s = check_names(h, file, name); !s) return s;
  return check_items(h, file, name);
}

Error damaged(const std::string& name, std::string_view what) {
  return error(Code::kCorrupt, "the manifest {} is damaged ({}); digest the dataset again",
               printable(name), what);
}

std::string printable(std::string_view key) {
  constexpr std::size_t kLongest = 200;
  std::string out = "'";
  std::string_view rest = key.substr(0, kLongest);
  while (!rest.empty()) {
    std::size_t n = utf8_length(rest);
    auto first = static_cast<unsigned char>(rest[0]);
    if (n == 0 || first < 0x20 || first == 0x7F) {
      out += fmt::format("\\x{:02x}", first);
      n = 1;
    } else {
      out += rest.substr(0, n);
    }
    rest.remove_prefix(n);
  }
  return out + (key.size() > kLongest ? "…'" : "'");
}

}  // namespace quiver::cache::format
