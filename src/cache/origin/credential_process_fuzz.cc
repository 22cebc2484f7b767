// What a credential_process writes, and how it is called: parsed or refused, and bounded.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "cache/origin/credential_process.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = quiver::cache::parse_process_credentials(text);
  CHECK(!parsed || !parsed->keys.access_key.empty());
  std::size_t length = 0;
  if (const auto words = quiver::cache::split_command(text)) {
    for (const auto& word : *words) length += word.size();
  }
  CHECK(length <= size);
  return 0;
}
