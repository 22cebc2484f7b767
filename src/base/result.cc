#include "base/result.h"

#include <cerrno>
#include <system_error>

namespace quiver {

std::string_view name(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "invalid";
    case Code::kNotFound:
      return "not_found";
    case Code::kDenied:
      return "denied";
    case Code::kExpired:
      return "expired";
    case Code::kThrottled:
      return "throttled";
    case Code::kUnreachable:
      return "unreachable";
    case Code::kTimeout:
      return "timeout";
    case Code::kChanged:
      return "changed";
    case Code::kShort:
      return "short";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kNoSpace:
      return "no_space";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kVersion:
      return "version";
    case Code::kCancelled:
      return "cancelled";
    case Code::kIo:
      return "io";
  }
  return "unknown";
}

Error os_error(int errno_value, std::string_view what) {
  Code code = Code::kIo;
  switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
      code = Code::kNotFound;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = Code::kDenied;
      break;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
      code = Code::kNoSpace;
      break;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENETUNREACH:
    case EHOSTUNREACH:
      code = Code::kUnreachable;
      break;
    case ETIMEDOUT:
    case EAGAIN:
      code = Code::kTimeout;
      break;
    default:
      break;
  }
  return error(code, "{}: {}", what, std::generic_category().message(errno_value));
}

}  // namespace quiver
