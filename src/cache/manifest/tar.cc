#include "cache/manifest/tar.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"
#include "cache/manifest/format.h"

namespace quiver::cache {

namespace {

constexpr std::uint64_t kMaxExtension = std::uint64_t{1} << 20;  // names are far shorter

// Fields of a header, by offset and length.
constexpr std::size_t kChecksum = 148, kType = 156;

std::string_view field(ByteSpan block, std::size_t offset, std::size_t length) {
  return as_text(block.subspan(offset, length));
}

std::string_view until_nul(std::string_view text) {
  return text.substr(0, text.find('\0'));
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const auto first = text.find_first_not_of(kSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<std::uint64_t> unsigned_of(std::string_view digits, int base) {
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(digits.begin(), digits.end(), value, base);
  if (problem != std::errc{} || end != digits.end()) return std::nullopt;
  return value;
}

// Octal digits, or GNU's base-256 where the first byte is 0x80. Nothing for another or a negative.
std::optional<std::uint64_t> number_of(std::string_view text) {
  if (static_cast<unsigned char>(text[0]) != 0x80) {
    const std::string_view digits = trimmed(until_nul(text));
    return digits.empty() ? 0 : unsigned_of(digits, 8);
  }
  std::uint64_t value = 0;
  for (const char c : text.substr(1)) {
    if (value >> 56 != 0) return std::nullopt;
    value = value << 8 | static_cast<unsigned char>(c);
  }
  return value;
}

// Of all bytes, its own field counted as spaces. Some writers have taken bytes as signed.
bool checksum_fits(ByteSpan block) {
  const auto stored = number_of(field(block, kChecksum, 8));
  std::uint64_t as_unsigned = 0;
  std::int64_t as_signed = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const bool own = i >= kChecksum && i < kChecksum + 8;
    const auto byte = own ? static_cast<unsigned char>(' ') : static_cast<unsigned char>(block[i]);
    as_unsigned += byte;
    as_signed += static_cast<signed char>(byte);
  }
  return stored && (*stored == as_unsigned || *stored == static_cast<std::uint64_t>(as_signed));
}

struct Compression {
  std::string_view magic, program;
};
constexpr std::array<Compression, 4> kCompressions{{{"\x1f\x8b", "gunzip"},
                                                    {"BZh", "bunzip2"},
                                                    {"\xfd"
                                                     "7zXZ",
                                                     "unxz"},
                                                    {"\x28\xb5\x2f\xfd", "unzstd"}}};

bool extends_all(char type) {
  return type == 'g';
}
bool extends_next(char type) {
  return type == 'x' || type == 'X' || type == 'L' || type == 'K';
}
bool is_file(char type) {
  return type == '0' || type == '\0' || type == '7' || type == 'S';
}
// Links, devices, folders and pipes: whatever length their header says, no content follows.
bool is_bare(char type) {
  return type >= '1' && type <= '6';
}

}  // namespace

TarReader::TarReader(std::string_view name, std::uint64_t size)
    : name_(format::printable(name)), size_(size) {}

std::optional<TarReader::Need> TarReader::need() const {
  if (ended_) return std::nullopt;
  return Need{at_, extension_ ? extension_->length : std::min(kTarBlock, size_ - at_)};
}

Result<std::optional<TarMember>> TarReader::give(ByteSpan bytes) {
  const auto expected = need();
  CHECK(expected && bytes.size() == expected->length);
  if (!extension_) return header(bytes);
  const Extension extension = *extension_;
  extension_.reset();
  TRY(extend(extension.type, bytes));
  TRY(skip_content(extension.length, "the name of a file"));
  if (ended_) return cut_off("behind the name of a file");
  return std::optional<TarMember>{};
}

Result<std::optional<TarMember>> TarReader::header(ByteSpan block) {
  if (block.size() < kTarBlock) return at_ == 0 ? no_archive(block) : cut_off("inside a header");
  if (std::ranges::all_of(block, [](std::byte b) { return b == std::byte{0}; })) {
    if (begin_) return damaged("no file follows a name");
    ended_ = true;  // the mark of the end
    return std::optional<TarMember>{};
  }
  const auto length = number_of(field(block, 124, 12));
  if (!checksum_fits(block) || !length) {
    return at_ == 0 ? no_archive(block) : damaged("there is no header where one must be");
  }
  const char type = static_cast<char>(block[kType]);
  if (!begin_) begin_ = at_;
  if (!extends_next(type) && !extends_all(type)) return member(block, type, *length);
  at_ += kTarBlock;
  if (*length > size_ - at_) return cut_off("inside the name of a file");
  if (*length > kMaxExtension) return damaged("a name is longer than 1 MiB");
  extension_ = Extension{type, *length};
  return std::optional<TarMember>{};
}

Result<std::optional<TarMember>> TarReader::member(ByteSpan block, char type,
                                                   std::uint64_t length) {
  TarMember made;
  const std::string_view name = until_nul(field(block, 0, 100));
  const std::string_view prefix = until_nul(field(block, 345, 155));
  made.name =
      prefix.empty() || type == 'S' ? std::string(name) : fmt::format("{}/{}", prefix, name);
  if (long_name_) made.name = *std::move(long_name_);
  const bool folder = type == '\0' && name.ends_with('/');  // as before ustar
  made.regular = is_file(type) && !folder;
  if (made.regular && (sparse_ || type == 'S')) return sparse();
  made.begin = *begin_;
  at_ += kTarBlock;
  made.data = at_;
  made.length = is_bare(type) || folder ? 0 : pax_size_.value_or(length);
  begin_.reset();
  long_name_.reset();
  pax_size_.reset();
  sparse_ = false;
  TRY(skip_content(made.length, format::printable(made.name)));
  return std::optional(std::move(made));
}

Status TarReader::extend(char type, ByteSpan content) {
  std::string_view text = as_text(content);
  if (type == 'K') return {};
  if (type == 'L') {
    if (!long_name_) long_name_ = std::string(until_nul(text));
    return {};
  }
  // "length keyword=value\n", the length that of the whole record.
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    const std::size_t space = text.find(' '), equals = text.find('=');
    const auto length = unsigned_of(text.substr(0, space), 10);
    const bool sound = length && space != text.npos && equals != text.npos && equals > space + 1 &&
                       *length > equals + 1 && *length <= text.size();
    if (!sound) return damaged("a pax header is malformed");
    TRY(pax_record(text.substr(space + 1, equals - space - 1),
                   text.substr(equals + 1, *length - equals - 2), extends_all(type)));
    text.remove_prefix(*length);
  }
  return {};
}

Status TarReader::pax_record(std::string_view keyword, std::string_view value, bool global) {
  const bool of_sparse = keyword.starts_with("GNU.sparse.");
  if (keyword != "path" && keyword != "size" && !of_sparse) return {};
  if (global) return damaged("a global header names files or their lengths");
  if (of_sparse) {
    sparse_ = true;
  } else if (keyword == "path") {
    if (!long_name_) long_name_ = std::string(value.substr(0, value.find_last_not_of('/') + 1));
  } else if (!pax_size_) {
    pax_size_ = unsigned_of(value, 10);
    if (!pax_size_) return damaged("a pax header is malformed");
  }
  return {};
}

// Contents fill whole blocks. The last one may lack its filling: it is not read.
Status TarReader::skip_content(std::uint64_t length, std::string_view what) {
  if (length > size_ - at_) {
    return cut_off(
        fmt::format("inside {} (bytes {} to {})", what, at_,
                    length > ~std::uint64_t{0} - at_ ? "2^64" : std::to_string(at_ + length)));
  }
  at_ += length;
  at_ += std::min((kTarBlock - length % kTarBlock) % kTarBlock, size_ - at_);
  ended_ = at_ == size_;
  return {};
}

Error TarReader::damaged(std::string_view what) const {
  return error(Code::kCorrupt,
               "the archive {} cannot be read at byte {}: {}; make it again or leave it out, and "
               "digest again",
               name_, at_, what);
}

Error TarReader::no_archive(ByteSpan beginning) const {
  for (const auto& [magic, program] : kCompressions) {
    if (!as_text(beginning).starts_with(magic)) continue;
    return error(Code::kInvalid,
                 "the archive {} is compressed, so single samples of it cannot be read; unpack it "
                 "({}) and digest it again",
                 name_, program);
  }
  return damaged("it is no tar archive");
}

Error TarReader::cut_off(std::string_view what) const {
  return error(Code::kCorrupt,
               "the archive {} is cut off: it ends at byte {}, {}; copy or make it again, and "
               "digest again",
               name_, size_, what);
}

Error TarReader::sparse() const {
  return error(Code::kInvalid,
               "the archive {} has a sparse file at byte {}, whose holes are not in it; make the "
               "archive again without --sparse",
               name_, *begin_);
}

}  // namespace quiver::cache
