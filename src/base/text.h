// Text as people write it: sizes, durations, near names.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace quiver {

// "20GB", "1.5 GiB", "4096", "64k": decimal units are powers of 1000, …iB powers of 1024.
Result<Bytes> parse_bytes(std::string_view text);

// "12.3 MB": three significant digits, powers of 1000.
std::string format_bytes(Bytes bytes);

// The candidate with the smallest edit distance to `name`, or empty when none is near (distance
// above a third of the longer name).
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace quiver
