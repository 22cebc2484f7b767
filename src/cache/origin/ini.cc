#include "cache/origin/ini.h"

namespace quiver::cache {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view trim(std::string_view s) {
  const auto first = s.find_first_not_of(kBlank);
  if (first == s.npos) return {};
  return s.substr(first, s.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

Result<IniFile> parse_ini(std::string_view text, std::string_view path) {
  IniFile file;
  std::map<std::string, std::string>* section = nullptr;
  std::string outer;  // the name that an indented line belongs to
  std::size_t number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    const std::string_view content = trim(line);
    if (content.empty() || content[0] == '#' || content[0] == ';') continue;
    const auto bad = [&](std::string_view why) {
      return error(Code::kInvalid, "{}, line {}: {}; correct the file", path, number, why);
    };
    if (content[0] == '[') {
      const auto end = content.find(']');
      if (end == content.npos) return bad("a section without ]");
      section = &file[std::string(trim(content.substr(1, end - 1)))];
      outer.clear();
      continue;
    }
    const auto equals = content.find('=');
    if (equals == content.npos) return bad("neither [section] nor name = value");
    if (!section) return bad("a value before the first [section]");
    std::string name(trim(content.substr(0, equals)));
    const std::string value(trim(content.substr(equals + 1)));
    const bool nested = kBlank.find(line[0]) != kBlank.npos && !outer.empty();
    if (nested) {
      (*section)[outer + "." + name] = value;
      continue;
    }
    (*section)[name] = value;
    outer = value.empty() ? std::move(name) : std::string{};
  }
  return file;
}

}  // namespace quiver::cache
