#include <algorithm>
#include <functional>
#include <limits>

#include "base/check.h"
#include "cache/manifest/format.h"
#include "cache/manifest/manifest.h"

namespace quiver::cache {

using namespace format;

// The tables as they will lie in the file: 72 bytes an item and one arena for all keys, so that ten
// million items cost what their file does.
struct ManifestBuilder::Tables {
  std::string origin_url, keys, class_names, object_keys, etags;
  std::vector<ItemRow> items;
  std::vector<PlaceRow> places;
  std::vector<ClassRow> classes;
  std::vector<ObjectRow> objects;

  std::string_view key(std::size_t i) const {
    std::uint64_t begin = i == 0 ? 0 : items[i - 1].key_end;
    return std::string_view(keys).substr(begin, items[i].key_end - begin);
  }
};

namespace {

using Tables = ManifestBuilder::Tables;

constexpr std::size_t kMaxRows = std::numeric_limits<std::uint32_t>::max() - 1;

Status check_counts(const Tables& t) {
  if (t.items.empty()) {
    return error(Code::kInvalid, "a manifest needs at least one item and {} has none",
                 printable(t.origin_url));
  }
  if (t.items.size() > kMaxRows || t.objects.size() > kMaxRows || t.classes.size() > kMaxRows) {
    return error(Code::kInvalid, "{} has more than {} items; divide the dataset",
                 printable(t.origin_url), kMaxRows);
  }
  return {};
}

Status check_item(const Tables& t, std::size_t i) {
  const ItemRow& item = t.items[i];
  const PlaceRow& place = t.places[i];
  bool labelled = item.label == kNoLabel ||
                  (item.label >= 0 && static_cast<std::size_t>(item.label) < t.classes.size());
  if (!labelled) {
    return error(Code::kInvalid, "item {} has label {}, but there are {} classes",
                 printable(t.key(i)), item.label, t.classes.size());
  }
  if (place.object >= t.objects.size()) {
    return error(Code::kInvalid, "item {} lies in object {}, but there are {} objects",
                 printable(t.key(i)), place.object, t.objects.size());
  }
  std::uint64_t size = t.objects[place.object].size;
  if (place.offset > size || item.length > size - place.offset) {
    return error(Code::kInvalid, "item {} ({} bytes from {}) ends beyond its object of {} bytes",
                 printable(t.key(i)), item.length, place.offset, size);
  }
  return {};
}

// Sorts by hash first, so that most comparisons touch no key, and by key among equals, so that
// chosen collisions cost no more than a sort.
Status check_keys_unique(const Tables& t) {
  struct Entry {
    std::size_t hash;
    std::uint32_t index;
  };
  std::vector<Entry> entries(t.items.size());
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    entries[i] = {std::hash<std::string_view>{}(t.key(i)), i};
  }
  std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return a.hash != b.hash ? a.hash < b.hash : t.key(a.index) < t.key(b.index);
  });
  auto twice =
      std::adjacent_find(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
        return a.hash == b.hash && t.key(a.index) == t.key(b.index);
      });
  if (twice == entries.end()) return {};
  return error(Code::kInvalid,
               "the key {} is in the dataset twice; rename or leave out one of them",
               printable(t.key(twice->index)));
}

Result<Header> make_header(const Tables& t) {
  Header h{};
  h.magic = kMagic;
  h.version = kVersion;
  h.header_size = sizeof(Header);
  h.item_count = static_cast<std::uint32_t>(t.items.size());
  h.object_count = static_cast<std::uint32_t>(t.objects.size());
  h.class_count = static_cast<std::uint32_t>(t.classes.size());
  for (const ItemRow& item : t.items) {
    if (item.length > std::numeric_limits<std::uint64_t>::max() - h.total_bytes) {
      return error(Code::kInvalid, "the items of {} add up to more than 2^64 bytes",
                   printable(t.origin_url));
    }
    h.flags |= item.flags;
    h.total_bytes += item.length;
    h.longest_item = std::max(h.longest_item, item.length);
  }
  h.tables[kItems].length = t.items.size() * sizeof(ItemRow);
  h.tables[kClasses].length = t.classes.size() * sizeof(ClassRow);
  h.tables[kKeys].length = t.keys.size();
  h.tables[kClassNames].length = t.class_names.size();
  h.tables[kPlaces].length = t.places.size() * sizeof(PlaceRow);
  h.tables[kObjects].length = t.objects.size() * sizeof(ObjectRow);
  h.tables[kObjectKeys].length = t.object_keys.size();
  h.tables[kEtags].length = t.etags.size();
  h.tables[kOriginUrl].length = t.origin_url.size();
  place_tables(h);
  return h;
}

// Appends a table with its padding and gives its memory back.
template <class Container>
void move_to(std::string& file, Container& rows) {
  file += as_text(std::as_bytes(std::span(rows.data(), rows.size())));
  file.resize((file.size() + 7) & ~std::size_t{7});
  rows = Container();
}

}  // namespace

ManifestBuilder::ManifestBuilder(std::string origin_url) : tables_(std::make_unique<Tables>()) {
  tables_->origin_url = std::move(origin_url);
}
ManifestBuilder::~ManifestBuilder() = default;
ManifestBuilder::ManifestBuilder(ManifestBuilder&&) noexcept = default;
ManifestBuilder& ManifestBuilder::operator=(ManifestBuilder&&) noexcept = default;

std::uint32_t ManifestBuilder::add_class(std::string_view name) {
  tables_->class_names += name;
  tables_->classes.push_back({tables_->class_names.size()});
  return static_cast<std::uint32_t>(tables_->classes.size() - 1);
}

std::uint32_t ManifestBuilder::add_object(std::string_view key, const ObjectVersion& version) {
  tables_->object_keys += key;
  tables_->etags += version.etag;
  tables_->objects.push_back(
      {version.size.value, version.mtime_ns, tables_->object_keys.size(), tables_->etags.size()});
  return static_cast<std::uint32_t>(tables_->objects.size() - 1);
}

void ManifestBuilder::add_item(const Sha256& hash, Bytes length, std::string_view key,
                               std::int32_t label, std::uint32_t object, std::uint64_t offset,
                               bool provisional) {
  tables_->keys += key;
  tables_->items.push_back(
      {hash, length.value, tables_->keys.size(), label, provisional ? kProvisionalFlag : 0});
  tables_->places.push_back({offset, object, 0});
}

Result<std::string> ManifestBuilder::finish() && {
  Tables& t = *tables_;
  Status sound = check_counts(t);
  for (std::size_t i = 0; sound && i < t.items.size(); ++i) sound = check_item(t, i);
  if (sound) sound = check_keys_unique(t);
  if (!sound) return std::move(sound).error();
  Header h = TRY(make_header(t));
  std::string file;
  file.reserve(h.file_size);
  file.resize(sizeof h);
  move_to(file, t.items);
  move_to(file, t.classes);
  move_to(file, t.keys);
  move_to(file, t.class_names);
  move_to(file, t.places);
  move_to(file, t.objects);
  move_to(file, t.object_keys);
  move_to(file, t.etags);
  move_to(file, t.origin_url);
  h.root = content_root(h, as_bytes(file));
  h.places_digest = places_digest(h, as_bytes(file));
  h.header_digest = header_digest(h);
  std::memcpy(file.data(), &h, sizeof h);
  return file;
}

std::string with_hashes(const Manifest& provisional, std::span<const Sha256> hashes) {
  CHECK(hashes.size() == provisional.size());
  std::string file(as_text(provisional.file_bytes()));
  Header h;
  std::memcpy(&h, file.data(), sizeof h);
  char* const rows = file.data() + h.tables[kItems].offset;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    ItemRow row;
    std::memcpy(&row, rows + i * sizeof row, sizeof row);
    row.hash = hashes[i];
    row.flags = 0;
    std::memcpy(rows + i * sizeof row, &row, sizeof row);
  }
  h.flags = 0;
  h.root = content_root(h, as_bytes(file));
  h.header_digest = header_digest(h);
  std::memcpy(file.data(), &h, sizeof h);
  return file;
}

}  // namespace quiver::cache
