#include "base/log.h"

#include <fmt/chrono.h>

#include <array>
#include <chrono>
#include <cstdio>

namespace quiver {

void StderrLog::write(LogLevel level, std::string_view line) {
  if (level < least_) return;
  static constexpr std::array<std::string_view, 4> kNames{"debug", "info", "warning", "error"};
  auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  std::string out =
      fmt::format("{:%FT%T}Z {} {}\n", now, kNames[static_cast<std::size_t>(level)], line);
  std::fwrite(out.data(), 1, out.size(), stderr);  // one call: lines of threads do not mix
}

}  // namespace quiver
