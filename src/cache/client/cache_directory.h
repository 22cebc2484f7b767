// Where the cache lies when nobody says: node-local scratch, else /var/tmp; never a network file
// system, never a home.
#pragma once

#include <string>

#include "base/quiver_settings.h"
#include "base/result.h"
#include "io/file.h"

namespace quiver::cache {

// settings.cache_dir, else `quiver-<uid>` below the first of these that is a directory on a local
// file system outside the home: $SLURM_TMPDIR, $LOCAL_SCRATCH, $TMPDIR (unless it is /tmp),
// /scratch/local, /local_scratch, /local/scratch, /var/tmp. kInvalid, saying what to set, when
// there is none.
Result<std::string> choose_cache_directory(const Settings& settings, io::Files& files,
                                           const Getenv& environment);

// The type of the file system that holds `path`, by the lines of a mount table; empty: unknown.
std::string filesystem_of(std::string_view mount_table, std::string_view path);

}  // namespace quiver::cache
