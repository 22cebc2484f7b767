// The encodings that origins speak: percent-encoding, dates, base64. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"

namespace quiver::cache {

// Every byte but A-Z a-z 0-9 - . _ ~ as %XX, once: what SigV4 signs and what any server decodes.
// encode_path keeps the slashes of a key.
std::string encode_component(std::string_view raw);
std::string encode_path(std::string_view raw);

// "%41" → "A"; decode_listing also "+" → " " (S3's encoding-type=url). Nothing for a '%' without
// two hex digits behind it.
std::optional<std::string> decode_percent(std::string_view encoded);
std::optional<std::string> decode_listing(std::string_view encoded);

// name=value pairs, sorted by encoded name and encoded, as they are to be signed and sent.
std::string encode_query(std::vector<std::pair<std::string, std::string>> parameters);

// Nanoseconds since 1970 of "Sun, 06 Nov 1994 08:49:37 GMT" or "1994-11-06T08:49:37.000Z", cut to
// the second (HEAD and list of one object must agree); 0 for anything else.
std::int64_t parse_http_date(std::string_view text);
std::int64_t parse_iso_date(std::string_view text);

// "19941106T084937Z", as signatures have it.
std::string signing_date(WallTime time);

// The 32 bytes that S3 gives in base64 as a SHA-256.
std::optional<Sha256> parse_base64_sha256(std::string_view text);

// A URL for messages: without query and without what may be a user and a password, however they are
// written: an '@' in the path takes what is before it along.
std::string without_credentials(std::string_view url);

// "HTTPS://h" → "https://h". What has no scheme stays.
std::string with_plain_scheme(std::string url);

// All of `text` as a number.
std::optional<std::uint64_t> parse_number(std::string_view text);

// The numbers of "bytes 5-9/100"; a total of '*' is absent.
struct ContentRange {
  std::uint64_t first, last;
  std::optional<std::uint64_t> total;
};
std::optional<ContentRange> parse_content_range(std::string_view text);

}  // namespace quiver::cache
