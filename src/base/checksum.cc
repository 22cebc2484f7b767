#include "base/checksum.h"

#include <xxhash.h>

namespace quiver {

struct Checksum32Stream::State {
  State() { XXH3_64bits_reset(xxh); }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* const xxh = XXH3_createState();
};

Checksum32Stream::Checksum32Stream() : state_(std::make_unique<State>()) {}
Checksum32Stream::~Checksum32Stream() = default;

void Checksum32Stream::update(ByteSpan data) {
  XXH3_64bits_update(state_->xxh, data.data(), data.size());
}

std::uint32_t Checksum32Stream::value() const {
  const std::uint64_t h = XXH3_64bits_digest(state_->xxh);
  return static_cast<std::uint32_t>(h ^ (h >> 32));
}

}  // namespace quiver
