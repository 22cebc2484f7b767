// What `quiver plan` is given: datasets, jobs, links and cache sizes, as TOML or as flags.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cache/policy/cache_model.h"

namespace quiver {

// Of one dataset and its jobs, as written on the command line. Empty: not given.
struct PlanArguments {
  std::string file;
  std::string bytes, link, speed;
  std::vector<std::string> caches;
  int jobs = 1;
};

struct Plan {
  std::vector<std::string> datasets, jobs;  // their names, in the order of the demands
  std::vector<Bytes> bytes;                 // of each dataset, at its origin
  std::vector<bool> unlimited;              // of each job: it computes as fast as it is fed
  std::vector<Bytes> caches;
  cache::Demands demands;  // but for the budget
};

// kInvalid says which line or value is wrong, and what is accepted.
Result<Plan> read_plan(const std::string& text, const std::string& name);
Result<Plan> plan_of(const PlanArguments& arguments);

}  // namespace quiver
