#include "cache/origin/s3_xml.h"

#include <pugixml.hpp>

#include "cache/origin/text.h"

namespace quiver::cache {
namespace {

// Keys may be blanks alone or hold line ends; nothing of their text may be tidied.
constexpr unsigned kParse =
    (pugi::parse_minimal | pugi::parse_escapes | pugi::parse_cdata | pugi::parse_ws_pcdata_single);

std::string quoted(std::string etag) {
  return etag.empty() || etag.ends_with('"') ? etag : '"' + etag + '"';
}

}  // namespace

Result<S3Page> parse_s3_page(std::string_view xml) {
  if (xml.size() > kMaxS3Xml.value) return error(Code::kCorrupt, "the listing is too long");
  pugi::xml_document document;
  const auto parsed = document.load_buffer(xml.data(), xml.size(), kParse, pugi::encoding_utf8);
  if (!parsed) {
    return error(Code::kCorrupt, "the listing is no XML: {} at byte {}", parsed.description(),
                 parsed.offset);
  }
  const auto root = document.child("ListBucketResult");
  if (!root) return error(Code::kCorrupt, "the answer is no listing of a bucket");
  const bool encoded = std::string_view(root.child_value("EncodingType")) == "url";
  S3Page page;
  for (const auto row : root.children("Contents")) {
    ListedObject object;
    object.key = row.child_value("Key");
    if (encoded) {
      auto key = decode_listing(object.key);
      if (!key) return error(Code::kCorrupt, "the listing holds a key that is not URL-encoded");
      object.key = *std::move(key);
    }
    const auto size = parse_number(row.child_value("Size"));
    if (object.key.empty() || !size) {
      return error(Code::kCorrupt, "the listing holds an object without key or size");
    }
    object.version = {Bytes(*size), quoted(row.child_value("ETag")),
                      parse_iso_date(row.child_value("LastModified"))};
    page.objects.push_back(std::move(object));
  }
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    page.next = root.child_value("NextContinuationToken");
    if (page.next.empty()) {
      return error(Code::kCorrupt, "the listing goes on but does not say from where");
    }
  }
  return page;
}

std::optional<S3Error> parse_s3_error(std::string_view xml) {
  if (xml.size() > kMaxS3Xml.value || xml.find("<Error") == xml.npos) return std::nullopt;
  pugi::xml_document document;
  if (!document.load_buffer(xml.data(), xml.size(), kParse, pugi::encoding_utf8)) {
    return std::nullopt;
  }
  const auto root = document.child("Error");
  S3Error found{root.child_value("Code"), root.child_value("Message"), root.child_value("Region")};
  if (found.code.empty()) return std::nullopt;
  return found;
}

}  // namespace quiver::cache
