#include "io/memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace quiver::io {
namespace {

// All of it is allocated now, so that no later write can meet a full memory (SIGBUS).
Result<Fd> allocate(const std::string& name, std::size_t size) {
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return os_error(errno, fmt::format("making shared memory {}", name));
  if (size == 0) return fd;
  int failed;
  do {
    failed = ::fallocate(fd.get(), 0, 0, static_cast<off_t>(size)) < 0 ? errno : 0;
  } while (failed == EINTR);
  if (failed != 0) {
    return os_error(failed, fmt::format("allocating {} bytes of shared memory {}", size, name));
  }
  return fd;
}

Status seal(int fd, int seals, const std::string& name) {
  if (::fcntl(fd, F_ADD_SEALS, seals) < 0) {
    return os_error(errno, fmt::format("sealing shared memory {}", name));
  }
  return {};
}

// A read-only description of the same memory that nobody can reopen for writing: the seals stop
// even those whom mode 0 does not. A read-only description is also what kernels before 6.7 want
// for a shared mapping of memory sealed against writing.
Result<Fd> reopen_for_readers(const Fd& fd, const std::string& name) {
  Fd readers(::open(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!readers.valid()) return os_error(errno, fmt::format("reopening shared memory {}", name));
  if (::fchmod(fd.get(), 0) < 0) {
    return os_error(errno, fmt::format("taking the mode from shared memory {}", name));
  }
  return readers;
}

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Mapping::Mapping(Mapping&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& o) noexcept {
  Mapping taken(std::move(o));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  return *this;
}

Result<Mapping> Mapping::map(int fd, std::size_t size, bool writable) {
  struct stat s {};
  if (::fstat(fd, &s) < 0) return os_error(errno, "looking at the memory to map");
  if (size == 0 || static_cast<std::uint64_t>(s.st_size) < size) {
    return error(Code::kInvalid, "cannot map {} bytes of a file of {}", size, s.st_size);
  }
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* data = ::mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return os_error(errno, fmt::format("mapping {} bytes", size));
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(data);
  mapping.size_ = size;
  return mapping;
}

Result<PublishedMemory> publish_memory(const std::string& name, std::size_t size) {
  const Fd fd = TRY(allocate(name, size));
  Mapping writer = TRY(Mapping::map(fd.get(), size, true));
  constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  // EINVAL: the kernel is older than 5.1; read-only and mode 0 must do there.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | kFixedSize) < 0) {
    if (errno != EINVAL) return os_error(errno, fmt::format("sealing shared memory {}", name));
    if (Status s = seal(fd.get(), kFixedSize, name); !s) return std::move(s).error();
  }
  Fd readers = TRY(reopen_for_readers(fd, name));
  return PublishedMemory{std::move(writer), std::move(readers)};
}

Result<Fd> make_client_memory(const std::string& name, std::size_t size) {
  Fd fd = TRY(allocate(name, size));
  if (Status s = seal(fd.get(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, name); !s)
    return std::move(s).error();
  return fd;
}

Result<Fd> make_sealed_copy(const std::string& name, ByteSpan data) {
  const Fd fd = TRY(allocate(name, data.size()));
  RealFiles files;
  if (Status s = files.pwrite(fd.get(), data, 0); !s) return std::move(s).error();
  if (Status s = seal(fd.get(), F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, name); !s)
    return std::move(s).error();
  return reopen_for_readers(fd, name);
}

bool futex_wait(const std::uint32_t* word, std::uint32_t seen, std::int64_t timeout_ns) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  timeout_ns = std::max<std::int64_t>(timeout_ns, 0);
  until.tv_sec += timeout_ns / kSecond + (until.tv_nsec + timeout_ns % kSecond) / kSecond;
  until.tv_nsec = (until.tv_nsec + timeout_ns % kSecond) % kSecond;
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == seen) {
    // Without FUTEX_PRIVATE_FLAG: the waker is another process.
    const auto r = ::syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &until, nullptr,
                             FUTEX_BITSET_MATCH_ANY);
    if (r < 0 && errno != EAGAIN && errno != EINTR) {
      return __atomic_load_n(word, __ATOMIC_ACQUIRE) != seen;
    }
  }
  return true;
}

void futex_wake_all(std::uint32_t* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace quiver::io
