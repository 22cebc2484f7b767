// Any bytes as a state: never a crash; what decodes, decodes to the same again once encoded. The
// checksum is set right, for otherwise nothing behind it would be reached.
#include <cstdint>

#include "base/check.h"
#include "cache/sampler/job_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quiver;
  using namespace quiver::cache;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const bool fix : {false, true}) {
    if (fix && size >= 4) {
      const std::uint32_t sum = checksum32(as_bytes(std::string_view(bytes).substr(0, size - 4)));
      for (std::size_t i = 0; i < 4; ++i) bytes[size - 4 + i] = static_cast<char>(sum >> (8 * i));
    }
    const auto state = decode_rank_state(bytes);
    if (!state) continue;
    const auto again = decode_rank_state(encode(*state));
    CHECK(again && again->delivered == state->delivered && encode(*again) == encode(*state));
    CHECK(again->delivered_before == state->delivered_before);
  }
  return 0;
}
