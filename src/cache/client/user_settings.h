// The settings of the user of this process, from its arguments, environment and settings file, and
// what follows from them for an origin.
#pragma once

#include <map>
#include <string>

#include "base/quiver_settings.h"
#include "base/result.h"
#include "cache/origin/origin.h"
#include "io/file.h"

namespace quiver::cache {

// Argument > environment > file > default. kInvalid, kDenied: each names the setting and its
// source. Its paths are absolute.
Result<Settings> user_settings(const std::map<std::string, std::string>& arguments,
                               io::Files& files);

// A path that is not absolute is meant from the working directory of who wrote it, which is not
// the daemon's.
Status make_paths_absolute(Settings& settings);

// No `credentials`: those of the environment.
Result<OriginSettings> user_origin(const std::string& url, const Settings& settings,
                                   const Credentials& credentials, io::Files& files);

}  // namespace quiver::cache
