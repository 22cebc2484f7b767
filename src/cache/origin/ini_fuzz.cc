// A file of ~/.aws: parsed or refused; a refusal never repeats what the file says.
#include <cstddef>
#include <cstdint>

#include "cache/origin/ini.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)quiver::cache::parse_ini({reinterpret_cast<const char*>(data), size}, "file");
  return 0;
}
