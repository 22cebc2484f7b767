// Manifest: what a dataset is. One immutable file of flat tables, read in place.
//
// Two parts (docs/formats/manifest.md): the content (for every item its SHA-256, length, label and
// key, and the class names) and the places (for every item its object and byte range at the origin,
// for every object its key, size, ETag and mtime, and the origin's URL). The root is the SHA-256 of
// the content alone, so that two copies of the same data in two buckets are one dataset; the places
// have a digest of their own. Whoever holds the root may read the content: never log it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/result.h"
#include "base/units.h"
#include "io/file.h"
#include "io/memory.h"

namespace quiver::cache {

inline constexpr std::int32_t kNoLabel = -1;

// What changes when an object is overwritten: its ETag where the origin has one, else size and
// mtime.
struct ObjectVersion {
  Bytes size;
  std::string etag;           // as sent by the origin, quotes included; empty: none
  std::int64_t mtime_ns = 0;  // 0: unknown
};

// One row of the manifest. The views point into it and live as long as it does.
struct Item {
  const Sha256* hash;
  Bytes length;
  std::string_view key;  // unique within the manifest
  std::int32_t label;    // index into classes(), or kNoLabel
  std::uint32_t object;  // where it lies at the origin
  std::uint64_t offset;  // within the object
  bool provisional;      // nobody has read it yet: `hash` is a name of its place and version
};

struct ObjectRef {
  std::string_view key;  // relative to origin_url()
  Bytes size;
  std::string_view etag;
  std::int64_t mtime_ns;
};

// Immutable after opening; any number of threads may read it.
class Manifest {
 public:
  // Copies the file into sealed memory and maps that (a mapped file that is truncated would be a
  // SIGBUS). `verify_content` recomputes the root and the places' digest and checks every row in
  // one pass. Without it the header and the tables' bounds are checked, and each row when it is
  // read: a row that points outside reads as empty. kCorrupt and kInvalid name the file and the
  // cure.
  static Result<std::shared_ptr<const Manifest>> open(io::Files& files, const std::string& path,
                                                      bool verify_content);
  // The same over a sealed memfd that was received from the daemon or a client; one that could
  // still shrink is refused.
  static Result<std::shared_ptr<const Manifest>> open(io::Fd fd, const std::string& name,
                                                      bool verify_content);
  virtual ~Manifest() = default;

  virtual std::uint32_t size() const = 0;  // number of items
  virtual Item item(ItemId id) const = 0;  // id < size(), else CHECK
  virtual std::uint32_t object_count() const = 0;
  virtual ObjectRef object(std::uint32_t index) const = 0;  // empty when there is none
  virtual std::uint32_t class_count() const = 0;
  virtual std::string_view class_name(std::uint32_t index) const = 0;
  virtual std::string_view origin_url() const = 0;
  virtual const Sha256& root() const = 0;
  virtual bool provisional() const = 0;   // some of its items are
  virtual Bytes total_bytes() const = 0;  // sum of item lengths
  virtual Bytes longest_item() const = 0;
  virtual ByteSpan file_bytes() const = 0;  // the file itself, to be passed on
  // The sealed memory behind it, to be passed to another process; -1 where there is none.
  virtual int descriptor() const { return -1; }
};

// The file of a provisional manifest whose items have all been read: the same, with their hashes
// (one an item, in order) in the place of names.
std::string with_hashes(const Manifest& provisional, std::span<const Sha256> hashes);

// Names what was listed, whatever the bytes are: keys, lengths, labels and classes. The same of a
// provisional manifest and of the one that it becomes.
Sha256 listing_hash(const Manifest& manifest);

// True when others than its owner can read the file: whoever reads a manifest may read its content,
// so the user should hear of it.
Result<bool> readable_by_others(io::Files& files, const std::string& path);

// Builds one, in memory. Items keep the order in which they are added. Ten million items need at
// most twice the size of their file. One thread at a time.
class ManifestBuilder {
 public:
  explicit ManifestBuilder(std::string origin_url);
  ~ManifestBuilder();
  ManifestBuilder(ManifestBuilder&&) noexcept;
  ManifestBuilder& operator=(ManifestBuilder&&) noexcept;

  std::uint32_t add_class(std::string_view name);
  std::uint32_t add_object(std::string_view key, const ObjectVersion& version);
  void add_item(const Sha256& hash, Bytes length, std::string_view key, std::int32_t label,
                std::uint32_t object, std::uint64_t offset, bool provisional = false);
  // kInvalid for what a manifest cannot hold: no items, a key twice, a label without its class, a
  // range beyond its object. Write the bytes with io::write_file_atomically, mode 0600.
  Result<std::string> finish() &&;  // the bytes of the file

  struct Tables;  // private to the folder

 private:
  std::unique_ptr<Tables> tables_;
};

}  // namespace quiver::cache
