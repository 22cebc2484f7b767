// What `quiver plan` is given: datasets, jobs, links and cache sizes, as TOML or as flags.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cache/policy/cache_model.h"

namespace quiver {

// As written on the command line. Empty: not given.
struct PlanArguments {
  std::string file;
  std::string bytes, link, speed;  // of one dataset and its jobs
  std::vector<std::string> caches;
  int jobs = 1;
  bool running = false;  // of what the daemon says
};

struct PlanDataset {
  std::string name;
  Bytes bytes;  // at its origin
};

struct PlanJob {
  std::string name;
  double epoch = 0;        // bytes that it reads in one
  bool unlimited = false;  // it computes as fast as it is fed
  // With so much of its dataset missing, or less, it is seen not to wait, whatever its link gives.
  double fed_missing = 0;
};

// How a cache stands that is in use.
struct PresentCache {
  Bytes size;
  cache::Demands demands;  // with the windows that the datasets have
  cache::Division division;
};

// Datasets and jobs in the order of the demands.
struct Plan {
  std::vector<PlanDataset> datasets;
  std::vector<PlanJob> jobs;
  std::vector<Bytes> caches;
  cache::Demands demands;  // but for the budget
  Bytes reserve;           // of each cache: what is no dataset's, at most a quarter
  std::optional<PresentCache> present;
};

// kInvalid says which line or value is wrong, and what is accepted.
Result<Plan> read_plan(const std::string& text, const std::string& name);
Result<Plan> plan_of(const PlanArguments& arguments);
Result<std::vector<Bytes>> plan_caches(const std::vector<std::string>& sizes);

}  // namespace quiver
