// A child whose output is wanted, and not for long.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace quiver::io {

struct ProgramOutput {
  int status = 0;  // as a shell has it: 128 + the signal that ended it
  std::string out, err;
};

// Runs argv[0] (searched in PATH when it has no '/') with our environment and working directory,
// and stdin from /dev/null; no shell is between. kTimeout: it and what it started in its process
// group have been killed. kCorrupt: it writes more than `limit`. kNotFound, kDenied: it cannot be
// run.
Result<ProgramOutput> run_program(const std::vector<std::string>& argv,
                                  std::chrono::milliseconds timeout, Bytes limit);

}  // namespace quiver::io
