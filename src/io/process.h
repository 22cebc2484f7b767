// This process and machine: environment, boot id, random bytes, children that outlive us.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace quiver::io {

// Differs after every boot of the machine; a UUID as text.
Result<std::string> boot_id();

// Not to be called while another thread changes the environment (ours never does).
std::optional<std::string> environment(const std::string& name);
std::vector<std::string> environment_names();

// `path` as seen from the root; relative ones begin at the working directory.
Result<std::string> absolute_path(const std::string& path);

// From the kernel's generator; fit for keys.
Status random_bytes(MutableByteSpan out);

// At most 15 characters are kept; seen in ps, top and gdb.
void name_this_thread(const std::string& name);

// Starts argv[0] (searched in PATH when it has no '/') as a process of its own: in a new session,
// not our child, with stdin from /dev/null, stdout and stderr appended to `output_path` (made with
// mode 0600; no link), every other descriptor closed, these `variables` and none of ours, in the
// root directory. Returns its pid once it runs; an argv[0] that cannot be run is an error here. The
// pid may have ended and been reused when it is looked at: it is for messages.
Result<pid_t> spawn_detached(const std::vector<std::string>& argv,
                             const std::vector<std::pair<std::string, std::string>>& variables,
                             const std::string& output_path);

}  // namespace quiver::io
