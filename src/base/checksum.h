// Checksum32Stream: checksum32 of bytes that arrive in pieces. One thread at a time.
#pragma once

#include <memory>

#include "base/hash.h"

namespace quiver {

class Checksum32Stream {
 public:
  Checksum32Stream();
  ~Checksum32Stream();
  Checksum32Stream(const Checksum32Stream&) = delete;
  Checksum32Stream& operator=(const Checksum32Stream&) = delete;

  void update(ByteSpan data);
  std::uint32_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quiver
