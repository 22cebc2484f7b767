#include "cache/origin/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>

namespace quiver::cache {
namespace {

constexpr std::size_t kLongestScheme = 16;

bool unreserved(unsigned char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

std::string encode(std::string_view raw, bool keep_slash) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(raw.size());
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    if (unreserved(byte) || (keep_slash && c == '/')) {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> decode(std::string_view encoded, bool plus_is_space) {
  std::string out;
  out.reserve(encoded.size());
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    if (plus_is_space && encoded[i] == '+') {
      out += ' ';
    } else if (encoded[i] == '%') {
      if (i + 2 >= encoded.size()) return std::nullopt;
      const int high = hex_value(encoded[i + 1]), low = hex_value(encoded[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += encoded[i];
    }
  }
  return out;
}

std::int64_t instant(std::uint64_t year, unsigned month, std::uint64_t day, std::uint64_t hour,
                     std::uint64_t minute, std::uint64_t second) {
  namespace chr = std::chrono;
  const chr::year_month_day date{chr::year(static_cast<int>(year)), chr::month(month),
                                 chr::day(static_cast<unsigned>(day))};
  if (!date.ok() || year < 1970 || year > 2200 || hour > 23 || minute > 59 || second > 60) return 0;
  const auto time = chr::sys_days(date).time_since_epoch() + chr::hours(hour) +
                    chr::minutes(minute) + chr::seconds(second);
  return chr::duration_cast<chr::nanoseconds>(time).count();
}

}  // namespace

std::string encode_component(std::string_view raw) {
  return encode(raw, false);
}
std::string encode_path(std::string_view raw) {
  return encode(raw, true);
}

std::optional<std::string> decode_percent(std::string_view encoded) {
  return decode(encoded, false);
}
std::optional<std::string> decode_listing(std::string_view encoded) {
  return decode(encoded, true);
}

std::string encode_query(std::vector<std::pair<std::string, std::string>> parameters) {
  for (auto& [name, value] : parameters) {
    name = encode_component(name);
    value = encode_component(value);
  }
  std::sort(parameters.begin(), parameters.end());
  std::string out;
  for (const auto& [name, value] : parameters) {
    if (!out.empty()) out += '&';
    out += name + '=' + value;
  }
  return out;
}

std::string with_plain_scheme(std::string url) {
  const auto end = url.find("://");
  if (end == url.npos || end > kLongestScheme) return url;
  std::transform(url.begin(), url.begin() + static_cast<std::ptrdiff_t>(end), url.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return url;
}

std::string without_credentials(std::string_view url) {
  const auto scheme = url.find("://");
  const auto start = scheme == url.npos ? 0 : scheme + 3;
  const auto at = url.rfind('@');
  std::string_view rest = url.substr(at == url.npos || at < start ? start : at + 1);
  rest = rest.substr(0, rest.find_first_of("?#"));
  return std::string(url.substr(0, start)) + std::string(rest);
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failed != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::int64_t parse_http_date(std::string_view text) {
  static constexpr std::array<std::string_view, 12> kMonths = {
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  if (text.size() != 29 || !text.ends_with(" GMT")) return 0;
  const auto month = std::find(kMonths.begin(), kMonths.end(), text.substr(8, 3));
  const auto day = parse_number(text.substr(5, 2)), year = parse_number(text.substr(12, 4)),
             hour = parse_number(text.substr(17, 2)), minute = parse_number(text.substr(20, 2)),
             second = parse_number(text.substr(23, 2));
  if (month == kMonths.end() || !day || !year || !hour || !minute || !second) return 0;
  return instant(*year, static_cast<unsigned>(month - kMonths.begin()) + 1, *day, *hour, *minute,
                 *second);
}

std::int64_t parse_iso_date(std::string_view text) {
  if (text.size() < 20 || text[10] != 'T') return 0;
  const auto year = parse_number(text.substr(0, 4)), month = parse_number(text.substr(5, 2)),
             day = parse_number(text.substr(8, 2)), hour = parse_number(text.substr(11, 2)),
             minute = parse_number(text.substr(14, 2)), second = parse_number(text.substr(17, 2));
  if (!year || !month || !day || !hour || !minute || !second) return 0;
  return instant(*year, static_cast<unsigned>(*month), *day, *hour, *minute, *second);
}

std::string signing_date(WallTime time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(time - day));
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

std::optional<Sha256> parse_base64_sha256(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() != 44 || text[43] != '=') return std::nullopt;
  Sha256 hash;
  std::uint32_t bits = 0, held = 0;
  std::size_t written = 0;
  for (const char c : text.substr(0, 43)) {
    const auto digit = kDigits.find(c);
    if (digit == kDigits.npos) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held >= 8) {
      held -= 8;
      hash.bytes[written++] = static_cast<std::uint8_t>(bits >> held);
    }
  }
  return hash;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const auto dash = text.find('-'), slash = text.find('/');
  if (dash == text.npos || slash == text.npos || dash > slash) return std::nullopt;
  const auto first = parse_number(text.substr(0, dash));
  const auto last = parse_number(text.substr(dash + 1, slash - dash - 1));
  const auto total = parse_number(text.substr(slash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  if (!total && text.substr(slash + 1) != "*") return std::nullopt;
  return ContentRange{*first, *last, total};
}

}  // namespace quiver::cache
