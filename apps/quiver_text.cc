#include "quiver_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace quiver {

std::string count(std::uint64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string count_of(std::uint64_t number, const char* one) {
  return fmt::format("{} {}{}", count(number), one, number == 1 ? "" : "s");
}

std::string part_of(Bytes part, Bytes whole) {
  std::string some = format_bytes(part);
  const std::string all = format_bytes(whole);
  const auto unit = all.find(' ');
  const bool same = unit != std::string::npos && some.ends_with(all.substr(unit)) &&
                    some.size() - some.find(' ') == all.size() - unit;
  if (same) some.resize(some.find(' '));
  return some + " of " + all;
}

std::string plain(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  // Of C1 controls as UTF-8: 0xc2 and 0x80 to 0x9f.
  for (std::size_t i = 1; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (text[i - 1] == '\xc2' && c >= 0x80 && c < 0xa0) text[i - 1] = text[i] = '?';
  }
  return text;
}

void print_json(const nlohmann::json& object) {
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace quiver
