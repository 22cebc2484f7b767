// The exit status of each kind of failure: docs/errors.md has the table.
#pragma once

#include "base/result.h"

namespace quiver {

constexpr int exit_status(Code code) {
  switch (code) {
    case Code::kInvalid:
      return 2;
    case Code::kNotFound:
      return 3;
    case Code::kDenied:
      return 4;
    case Code::kExpired:
      return 5;
    case Code::kThrottled:
      return 6;
    case Code::kUnreachable:
      return 7;
    case Code::kTimeout:
      return 8;
    case Code::kChanged:
      return 9;
    case Code::kShort:
      return 10;
    case Code::kCorrupt:
      return 11;
    case Code::kNoSpace:
      return 12;
    case Code::kUnavailable:
      return 13;
    case Code::kVersion:
      return 14;
    case Code::kIo:
      return 15;
    case Code::kCancelled:
      return 130;
  }
  return 1;
}

inline constexpr int kExitDegraded = 20;  // quiver status: the daemon runs, but not as it should

}  // namespace quiver
