#include "cache/manifest/manifest.h"

#include <fcntl.h>

#include <algorithm>

#include "base/check.h"
#include "cache/manifest/format.h"

namespace quiver::cache {

namespace {

using namespace format;

// Bytes [begin, end) of `text`, or nothing when they do not lie in it.
std::string_view slice(ByteSpan text, std::uint64_t begin, std::uint64_t end) {
  if (begin > end || end > text.size()) return {};
  return as_text(text.subspan(begin, end - begin));
}

// Owns the descriptor and the mapping of it. Invariant: the header passed check_header for exactly
// this mapping, so every table lies inside; what rows say is bounds-checked on each access, because
// without `checked` nobody has looked, and whoever sent the memory may still write to it.
class FileManifest final : public Manifest {
 public:
  FileManifest(io::Fd fd, io::Mapping map, const Header& header, bool checked)
      : fd_(std::move(fd)), map_(std::move(map)), header_(header), checked_(checked) {}

  std::uint32_t size() const override { return header_.item_count; }
  Item item(ItemId id) const override;
  std::uint32_t object_count() const override { return header_.object_count; }
  ObjectRef object(std::uint32_t index) const override;
  std::uint32_t class_count() const override { return header_.class_count; }
  std::string_view class_name(std::uint32_t index) const override;
  std::string_view origin_url() const override { return as_text(rows(kOriginUrl)); }
  const Sha256& root() const override { return header_.root; }
  bool provisional() const override { return (header_.flags & kProvisionalFlag) != 0; }
  Bytes total_bytes() const override { return Bytes(header_.total_bytes); }
  Bytes longest_item() const override { return Bytes(header_.longest_item); }
  ByteSpan file_bytes() const override { return {map_.data(), map_.size()}; }
  int descriptor() const override { return fd_.get(); }

 private:
  ByteSpan rows(TableId id) const { return table(header_, file_bytes(), id); }
  bool lies_in_its_object(const ItemRow& item, const PlaceRow& place) const;

  io::Fd fd_;
  io::Mapping map_;
  Header header_;
  bool checked_;
};

Item FileManifest::item(ItemId id) const {
  CHECK(id.value < header_.item_count);
  ByteSpan items = rows(kItems);
  auto item = row_at<ItemRow>(items, id.value);
  auto place = row_at<PlaceRow>(rows(kPlaces), id.value);
  std::uint64_t begin = id.value == 0 ? 0 : row_at<ItemRow>(items, id.value - 1).key_end;
  bool known = item.label >= 0 && static_cast<std::uint32_t>(item.label) < header_.class_count;
  if (!checked_ && !lies_in_its_object(item, place)) item.length = place.offset = 0;
  return Item{
      .hash = reinterpret_cast<const Sha256*>(items.data() + id.value * sizeof(ItemRow)),
      .length = Bytes(item.length),
      .key = slice(rows(kKeys), begin, item.key_end),
      .label = known ? item.label : kNoLabel,
      .object = place.object,
      .offset = place.offset,
      .provisional = (item.flags & kProvisionalFlag) != 0,
  };
}

bool FileManifest::lies_in_its_object(const ItemRow& item, const PlaceRow& place) const {
  if (place.object >= header_.object_count) return false;
  std::uint64_t size = row_at<ObjectRow>(rows(kObjects), place.object).size;
  return place.offset <= size && item.length <= size - place.offset &&
         item.length <= header_.longest_item;
}

ObjectRef FileManifest::object(std::uint32_t index) const {
  if (index >= header_.object_count) return {};  // an index out of the file, so no CHECK
  ByteSpan objects = rows(kObjects);
  auto row = row_at<ObjectRow>(objects, index);
  ObjectRow before{};
  if (index > 0) before = row_at<ObjectRow>(objects, index - 1);
  return ObjectRef{
      .key = slice(rows(kObjectKeys), before.key_end, row.key_end),
      .size = Bytes(row.size),
      .etag = slice(rows(kEtags), before.etag_end, row.etag_end),
      .mtime_ns = row.mtime_ns,
  };
}

std::string_view FileManifest::class_name(std::uint32_t index) const {
  CHECK(index < header_.class_count);
  ByteSpan classes = rows(kClasses);
  std::uint64_t begin = index == 0 ? 0 : row_at<ClassRow>(classes, index - 1).name_end;
  return slice(rows(kClassNames), begin, row_at<ClassRow>(classes, index).name_end);
}

// The header of an open file of `size` bytes, checked.
Result<Header> read_header(io::Files& files, int fd, std::uint64_t size, const std::string& name) {
  Header header{};
  if (size < sizeof header) return damaged(name, fmt::format("it has only {} bytes", size));
  std::size_t got = TRY(files.pread(fd, std::as_writable_bytes(std::span(&header, 1)), 0));
  if (got != sizeof header) return damaged(name, "it became shorter while it was read");
  if (Status s = check_header(header, size, name); !s) return std::move(s).error();
  return header;
}

// A file may be truncated by anyone while it is mapped, which would be a SIGBUS here. So it is
// copied into sealed memory, straight from the file: a second copy would cost 2 GB at 10 million
// items.
Result<io::Fd> copy_to_memory(io::Files& files, int fd, std::uint64_t size,
                              const std::string& name) {
  constexpr std::size_t kPiece = std::size_t{1} << 30;  // one read(2) moves at most 2 GiB
  auto memory = TRY(io::publish_memory("quiver-manifest", size));
  for (std::size_t at = 0; at < size; at += kPiece) {
    MutableByteSpan piece{memory.writer.data() + at, std::min(kPiece, size - at)};
    if (TRY(files.pread(fd, piece, at)) != piece.size()) {
      return damaged(name, "it became shorter while it was read");
    }
  }
  return std::move(memory.readers);
}

bool can_shrink(int fd) {
  int seals = ::fcntl(fd, F_GET_SEALS);
  return seals < 0 || (seals & F_SEAL_SHRINK) == 0;
}

}  // namespace

Result<std::shared_ptr<const Manifest>> Manifest::open(io::Files& files, const std::string& path,
                                                       bool verify_content) {
  io::FileInfo info = TRY(files.stat(path));  // before the open: that of a pipe would wait
  if (!info.is_regular) {
    return error(Code::kInvalid, "{} is not a file, so it is no manifest; name another",
                 printable(path));
  }
  io::Fd fd = TRY(files.open(path, O_RDONLY));
  std::uint64_t size = TRY(files.stat(fd.get()))
  .size.value;
  // Nothing is copied of what is no manifest.
  if (auto header = read_header(files, fd.get(), size, path); !header) {
    return std::move(header).error();
  }
  return open(TRY(copy_to_memory(files, fd.get(), size, path)), path, verify_content);
}

Result<std::shared_ptr<const Manifest>> Manifest::open(io::Fd fd, const std::string& name,
                                                       bool verify_content) {
  io::RealFiles files;
  std::uint64_t size = TRY(files.stat(fd.get()))
  .size.value;
  if (can_shrink(fd.get())) {
    return error(Code::kInvalid, "the manifest {} was passed as memory that is not sealed",
                 printable(name));
  }
  Header header = TRY(read_header(files, fd.get(), size, name));
  io::Mapping map = TRY(io::Mapping::map(fd.get(), size, false));
  ByteSpan bytes{map.data(), map.size()};
  Status sound = check_padding(header, bytes, name);
  if (sound && verify_content) sound = check_content(header, bytes, name);
  if (!sound) return std::move(sound).error();
  return std::make_shared<const FileManifest>(std::move(fd), std::move(map), header,
                                              verify_content);
}

Result<bool> readable_by_others(io::Files& files, const std::string& path) {
  return (TRY(files.stat(path)).mode & 0044) != 0;
}

Sha256 listing_hash(const Manifest& manifest) {
  Sha256Stream digest;
  const auto add = [&](std::uint64_t value) { digest.update(std::as_bytes(std::span(&value, 1))); };
  const auto add_text = [&](std::string_view text) {
    add(text.size());
    digest.update(as_bytes(text));
  };
  add_text("quiver listing 1");
  add(manifest.size());
  for (std::uint32_t i = 0; i < manifest.size(); ++i) {
    const Item item = manifest.item(ItemId(i));
    add(item.length.value);
    add(static_cast<std::uint64_t>(std::int64_t{item.label}));
    add_text(item.key);
  }
  for (std::uint32_t i = 0; i < manifest.class_count(); ++i) add_text(manifest.class_name(i));
  return digest.finish();
}

}  // namespace quiver::cache
