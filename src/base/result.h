// Result<T>: the value, or one Error that reads as a sentence.
//
// Expected failure (a missing object, a full disk, bad input) travels as Result. A bug is a CHECK.
// Exceptions exist only at the Python boundary and in main().
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace quiver {

// What a caller can do about a failure. Keep it at about a dozen: a code exists only where somebody
// decides differently on it. docs/errors.md is the table of codes, Python exceptions, exit
// statuses.
enum class Code {
  kInvalid,      // the request, setting or file content is wrong; cure: change it
  kNotFound,     // the named thing does not exist
  kDenied,       // permission refused by the origin, the daemon or the OS
  kExpired,      // credentials have expired; cure: refresh them
  kThrottled,    // the origin asks for less; retried with back-off
  kUnreachable,  // no connection, or it broke; retried
  kTimeout,      // a deadline passed
  kChanged,      // the object at the origin is not the one in the manifest
  kShort,        // fewer bytes than announced
  kCorrupt,      // bytes do not match their hash or checksum
  kNoSpace,      // disk, budget or memory limit reached
  kUnavailable,  // the daemon is gone or stopping
  kVersion,      // the peer or file speaks another version
  kCancelled,    // a stop was asked for
  kIo,           // the OS reported another error (errno is in the message)
};

std::string_view name(Code code);

struct [[nodiscard]] Error {
  Code code = Code::kIo;
  std::string message;  // one sentence: what failed, on what, what to do

  // The same failure seen from one layer up: "reading s3://b/k: connection refused".
  Error context(std::string_view what) && {
    return Error{code, fmt::format("{}: {}", what, message)};
  }
};

template <class... Args>
Error error(Code code, fmt::format_string<Args...> text, Args&&... args) {
  return Error{code, fmt::format(text, std::forward<Args>(args)...)};
}

// The error of a failed system call: maps errno to a Code and appends its text.
Error os_error(int errno_value, std::string_view what);

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result(Error e) : tl::expected<T, Error>(tl::unexpected<Error>(std::move(e))) {}  // NOLINT
};

using Status = Result<void>;

namespace detail {
inline void unwrap(Status&&) {}
template <class T>
T unwrap(Result<T>&& result) {
  return *std::move(result);
}
}  // namespace detail

}  // namespace quiver

#define QUIVER_TRY_NAMED_(result, expr)            \
  __extension__({                                  \
    auto result = (expr);                          \
    if (!result) return std::move(result).error(); \
    ::quiver::detail::unwrap(std::move(result));   \
  })
#define QUIVER_TRY_NUMBERED_(number, expr) QUIVER_TRY_NAMED_(try_##number##_, expr)
#define QUIVER_TRY_(number, expr) QUIVER_TRY_NUMBERED_(number, expr)

// `auto x = TRY(f());` gives the value of f(), or returns its Error from this function.
#define TRY(expr) QUIVER_TRY_(__COUNTER__, expr)
