// Two things that the kernel does for processes that share memory: memory that grows as it is
// touched, and a mark that a fork wipes.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "io/file.h"
#include "io/memory.h"

namespace quiver::cache {

// Anonymous memory of `size` bytes of address space, of which only what is touched occupies
// anything. For memory between a process and its own children: nothing is sealed but the size.
Result<io::Fd> make_sparse_memory(const std::string& name, std::size_t size);

// Gives the pages that lie wholly within the range back to the system; they read as zeros.
Status release_pages(const io::Fd& fd, std::size_t offset, std::size_t size);

// True in the process that made it, false in every child of a fork. Two nanoseconds to ask, where
// getpid() costs a system call. Any thread may ask.
class ForkMark {
 public:
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;
  bool in_maker() const;

 private:
  void* page_ = nullptr;  // wiped by a fork; null: the kernel cannot, compare pid_
  int pid_;
};

}  // namespace quiver::cache
