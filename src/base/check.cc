#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace quiver {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "quiver: bug: CHECK(%s) failed at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace quiver
