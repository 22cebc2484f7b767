// Credentials from a program that the profile names: `credential_process` of ~/.aws/config.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cache/origin/credentials.h"

namespace quiver::cache {

struct ExpiringCredentials {
  Credentials keys;
  std::optional<WallTime> expires;  // absent: not known, or never
};

// Words as a POSIX shell splits them, as the AWS SDKs do: blanks, '…', "…" and \. Nothing is
// expanded, and nothing else is special. kInvalid for a quote or backslash without its end.
Result<std::vector<std::string>> split_command(std::string_view command);

// What such a program writes: JSON of Version 1. kInvalid; the message repeats none of it.
Result<ExpiringCredentials> parse_process_credentials(std::string_view json);

// Runs it, for a minute at most. An error tells the profile and the end of its stderr. kExpired:
// what it gave had expired at `now`.
Result<ExpiringCredentials> run_credential_process(const std::string& profile,
                                                   std::string_view command, WallTime now);

}  // namespace quiver::cache
