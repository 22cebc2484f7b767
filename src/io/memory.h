// Memory that processes share: sealed memfds and mappings of them.
//
// The daemon writes a view or makes a bitmap; clients get descriptors. What each side may do is
// fixed by seals before a descriptor is passed (design.md, "Descriptors and shared memory").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/hash.h"
#include "base/result.h"
#include "io/file.h"

namespace quiver::io {

// A mapping of a descriptor. Move-only; unmaps on destruction.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& o) noexcept;
  Mapping& operator=(Mapping&& o) noexcept;
  // `size` bytes from the start, MAP_SHARED. The file must be at least as long (checked by fstat).
  static Result<Mapping> map(int fd, std::size_t size, bool writable);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Memory that one process writes and others only read: allocated in full when made, mapped writable
// here, then sealed FUTURE_WRITE, SHRINK, GROW and SEAL (on kernels before 5.1 the descriptor is
// only read-only); `readers` is a read-only descriptor of mode 0.
struct PublishedMemory {
  Mapping writer;
  Fd readers;
};
Result<PublishedMemory> publish_memory(const std::string& name, std::size_t size);

// Memory that a client writes and this process only preads: allocated in full, sealed SHRINK, GROW
// and SEAL. Never map it here: use Files::pread.
Result<Fd> make_client_memory(const std::string& name, std::size_t size);

// A sealed, immutable copy of `data` (the manifest as it is passed to clients).
Result<Fd> make_sealed_copy(const std::string& name, ByteSpan data);

// Waits until *word != seen, or the time is over; false on time-out. `word` may lie in memory
// mapped read-only and shared between processes.
bool futex_wait(const std::uint32_t* word, std::uint32_t seen, std::int64_t timeout_ns);
void futex_wake_all(std::uint32_t* word);

}  // namespace quiver::io
