// ArchiveWindow: what of an archive is in memory while it is read from front to end.
#pragma once

#include <optional>
#include <string>

#include "cache/origin/origin.h"

namespace quiver::cache {

// Borrows the origin, the object and the memory. One thread; for one archive.
class ArchiveWindow {
 public:
  static constexpr std::uint64_t kLargest = std::uint64_t{32} << 20;

  // `contents`: also what lies between the headers is wanted. `local`: a request costs nothing.
  ArchiveWindow(Origin& origin, const ListedObject& object, bool contents, bool local,
                std::string& memory)
      : origin_(origin), object_(object), contents_(contents), local_(local), memory_(memory) {
    memory_.clear();
  }

  // Bytes from `offset`, valid until the next call. What lies from `keep` on stays in the window,
  // unless that would be too much. Offsets never fall.
  Result<ByteSpan> get(std::uint64_t offset, std::uint64_t length, std::uint64_t keep,
                       std::stop_token stop);
  // These bytes, if they are all there.
  std::optional<ByteSpan> held(std::uint64_t offset, std::uint64_t length) const;
  Bytes read() const { return Bytes(read_); }  // from the origin

 private:
  std::uint64_t end() const { return base_ + memory_.size(); }
  std::uint64_t step(std::uint64_t gap) const;

  Origin& origin_;
  const ListedObject& object_;
  const bool contents_, local_;
  std::string& memory_;
  std::uint64_t base_ = 0;  // of the first byte in memory
  std::uint64_t read_ = 0;
};

}  // namespace quiver::cache
