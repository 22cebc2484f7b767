// The two XML documents that S3 answers with. Bytes from outside: bounded, never trusted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cache/origin/origin.h"

namespace quiver::cache {

inline constexpr Bytes kMaxS3Xml = 16_MiB;

// One page of ListObjectsV2. Keys are whole and decoded.
struct S3Page {
  std::vector<ListedObject> objects;
  std::string next;  // the continuation token; empty: this was the last page
};
Result<S3Page> parse_s3_page(std::string_view xml);

// <Error><Code>…</Code>…</Error>; nothing for any other document.
struct S3Error {
  std::string code, message, region;
};
std::optional<S3Error> parse_s3_error(std::string_view xml);

}  // namespace quiver::cache
