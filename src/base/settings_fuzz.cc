// Any bytes as a settings file.
#include <cstdlib>

#include "base/quiver_settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quiver;
  SettingsFile file{"fuzz.toml", {reinterpret_cast<const char*>(data), size}};
  auto nothing = [](const std::string&) -> std::optional<std::string> { return std::nullopt; };
  auto settings = load_settings({}, nothing, {}, file);
  if (settings ? explain(*settings).empty() : settings.error().message.empty()) std::abort();
  return 0;
}
