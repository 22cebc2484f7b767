// TarReader: the headers of a tar archive, one after the other, without its contents.
//
// ustar, GNU (long names, base-256 sizes) and pax, as Python's tarfile reads them
// (https://docs.python.org/3/library/tarfile.html; POSIX.1-2017, pax, "ustar Interchange Format";
// GNU tar manual, "Basic Tar Format").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/result.h"

namespace quiver::cache {

inline constexpr std::uint64_t kTarBlock = 512;

struct TarMember {
  std::string name;          // opaque bytes
  std::uint64_t begin = 0;   // of its first header, those that extend it included
  std::uint64_t data = 0;    // of its content
  std::uint64_t length = 0;  // of its content; 0 where it has none
  std::uint64_t end() const { return data + length; }
  bool regular = false;  // a file: no folder, link or device
};

// A state machine without I/O: it says which bytes it needs, is given them, and so reaches the end.
// Owns what extending headers have said of the member to come. One thread at a time. After an error
// it is of no more use. Nothing in the bytes reaches a CHECK.
class TarReader {
 public:
  // `name` and `size` of the archive.
  TarReader(std::string_view name, std::uint64_t size);

  struct Need {
    std::uint64_t offset, length;
  };
  // Empty at the end of the archive. Always within it, and at most 1 MiB.
  std::optional<Need> need() const;
  // Exactly the bytes needed. A member, when its headers are complete. kCorrupt for an archive that
  // is cut off or damaged, kInvalid for what cannot be read by ranges (compressed, sparse); each
  // names the archive, the offset and the cure.
  Result<std::optional<TarMember>> give(ByteSpan bytes);

 private:
  // An extending header whose content comes next.
  struct Extension {
    char type;
    std::uint64_t length;
  };
  Result<std::optional<TarMember>> header(ByteSpan block);
  Result<std::optional<TarMember>> member(ByteSpan block, char type, std::uint64_t length);
  Status extend(char type, ByteSpan content);
  Status pax_record(std::string_view keyword, std::string_view value, bool global);
  Status skip_content(std::uint64_t length, std::string_view what);
  Error damaged(std::string_view what) const;
  Error no_archive(ByteSpan beginning) const;
  Error cut_off(std::string_view what) const;
  Error sparse() const;

  std::string name_;  // as messages show it
  std::uint64_t size_;
  std::uint64_t at_ = 0;  // of what is needed next
  bool ended_ = false;
  std::optional<Extension> extension_;
  // Of the member to come. The first header that says something of it is right.
  std::optional<std::uint64_t> begin_;
  std::optional<std::string> long_name_;
  std::optional<std::uint64_t> pax_size_;
  bool sparse_ = false;
};

}  // namespace quiver::cache
