#include "base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <numeric>
#include <vector>

namespace quiver {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 18> kUnits{{
    {"", 1},
    {"b", 1},
    {"k", 1e3},
    {"kb", 1e3},
    {"m", 1e6},
    {"mb", 1e6},
    {"g", 1e9},
    {"gb", 1e9},
    {"t", 1e12},
    {"tb", 1e12},
    {"p", 1e15},
    {"pb", 1e15},
    {"kib", 0x1p10},
    {"mib", 0x1p20},
    {"gib", 0x1p30},
    {"tib", 0x1p40},
    {"pib", 0x1p50},
    {"bytes", 1},
}};

std::string_view trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  std::string_view t = trim(text);
  double number = 0;
  auto [end, ec] = std::from_chars(t.data(), t.data() + t.size(), number);
  std::string unit(trim(t.substr(static_cast<std::size_t>(end - t.data()))));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  auto found =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == unit; });
  if (ec != std::errc() || found == kUnits.end() || !(number >= 0) ||
      number * found->factor >= 0x1p63) {
    return error(Code::kInvalid,
                 "'{}' is not a size; write a number with a unit, such as 20GB or 512MiB", text);
  }
  return Bytes(static_cast<std::uint64_t>(number * found->factor + 0.5));
}

std::string format_bytes(Bytes bytes) {
  static constexpr std::array<std::string_view, 6> kNames{"B", "kB", "MB", "GB", "TB", "PB"};
  double v = static_cast<double>(bytes.value);
  std::size_t i = 0;
  while (v >= 999.5 && i + 1 < kNames.size()) v /= 1000, ++i;
  int decimals = i == 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", v, decimals, kNames[i]);
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = SIZE_MAX;
  for (std::string_view c : candidates) {
    std::vector<std::size_t> row(c.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < name.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i + 1;
      for (std::size_t j = 0; j < c.size(); ++j) {
        std::size_t replace = diagonal + (name[i] == c[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
      }
    }
    std::size_t allowed = std::max(name.size(), c.size()) / 3;
    if (row.back() <= allowed && row.back() < best_distance) best_distance = row.back(), best = c;
  }
  return best;
}

}  // namespace quiver
