// The files in ~/.aws: sections of name = value, one level of nesting.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quiver::cache {

// Section → name → value; a nested "s3 =\n  addressing_style = path" is named
// "s3.addressing_style".
using IniFile = std::map<std::string, std::map<std::string, std::string>>;

// kInvalid names `path` and the line, never what the line says: it may hold a secret.
Result<IniFile> parse_ini(std::string_view text, std::string_view path);

}  // namespace quiver::cache
