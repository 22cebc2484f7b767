#include "cache/client/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace quiver::cache {
namespace {

std::size_t page_size() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Result<io::Fd> make_sparse_memory(const std::string& name, std::size_t size) {
  io::Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return os_error(errno, fmt::format("making shared memory {}", name));
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) < 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
    return os_error(errno, fmt::format("sizing shared memory {}", name));
  }
  return fd;
}

Status release_pages(const io::Fd& fd, std::size_t offset, std::size_t size) {
  const std::size_t page = page_size();
  const std::size_t first = (offset + page - 1) / page * page;
  const std::size_t end = (offset + size) / page * page;
  if (end <= first) return {};
  if (::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                  static_cast<off_t>(end - first)) < 0) {
    return os_error(errno, "giving shared memory back");
  }
  return {};
}

ForkMark::ForkMark() : pid_(::getpid()) {
  void* page =
      ::mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (::madvise(page, page_size(), MADV_WIPEONFORK) < 0) {
    ::munmap(page, page_size());
    return;
  }
  *static_cast<volatile int*>(page) = 1;
  page_ = page;
}

ForkMark::~ForkMark() {
  if (page_ != nullptr) ::munmap(page_, page_size());
}

bool ForkMark::in_maker() const {
  if (page_ == nullptr) return ::getpid() == pid_;
  return *static_cast<const volatile int*>(page_) == 1;
}

}  // namespace quiver::cache
