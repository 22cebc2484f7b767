// CHECK(condition): a bug stops the process, in release builds too. Never for bytes from disk or
// wire.
#pragma once

namespace quiver {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace quiver

#define CHECK(condition)                                                                      \
  (__builtin_expect(!(condition), 0) ? ::quiver::check_failed(#condition, __FILE__, __LINE__) \
                                     : void())
