#include "running_plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "quiver_text.h"

namespace quiver {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kIdShown = 12;  // characters of a public id, as in `quiver top`
constexpr double kWaits = 0.05;       // of the time: below it a job is said not to wait

std::uint64_t whole(const Json& json, const char* name) {
  return json.value(name, std::uint64_t{0});
}

// The ranks of one job on this machine.
struct Ranks {
  std::string name;
  double paces = 0;  // items/s, of those that are known
  std::size_t known = 0, all = 0;
  std::uint64_t items = 0;  // that they take in an epoch
  bool fed = true;          // none of them waits for bytes
};

std::map<std::uint64_t, Ranks> jobs_of(const Json& dataset) {
  std::map<std::uint64_t, Ranks> jobs;
  for (const Json& rank : dataset["jobs"]) {
    Ranks& job = jobs[whole(rank, "job")];
    job.name = plain(rank.value("name", "job"));
    job.items += whole(rank, "to_take");
    ++job.all;
    const Json recent = rank.value("recent", Json::object());
    job.fed = job.fed && recent.value("items_per_s", 0.0) > 0 &&
              recent.value("waiting_link", 1.0) < kWaits;
    const double pace = rank.value("pace", Json::object()).value("items_per_s", 0.0);
    if (!(pace > 0)) continue;
    job.paces += pace;
    ++job.known;
  }
  return jobs;
}

// As the daemon has it: a rank whose pace is not known yet counts as the mean of the others.
double items_per_second(const Ranks& job) {
  if (job.known == 0) return 0;
  return job.paces / static_cast<double>(job.known) * static_cast<double>(job.all);
}

void add_dataset(Plan& plan, std::map<std::uint64_t, std::size_t>& links, const Json& dataset) {
  const Json& its = dataset["demand"];
  const auto link = links.try_emplace(whole(its, "link"), plan.demands.links.size());
  if (link.second) plan.demands.links.push_back(dataset.value("link_bytes_per_s", 0.0));
  cache::DatasetDemand demand;
  demand.need = Bytes(whole(its, "need"));
  demand.window = Bytes(whole(its, "window"));
  if (its.contains("limit")) demand.limit = Bytes(whole(its, "limit"));
  demand.link = link.first->second;
  const std::size_t number = plan.datasets.size();
  const Bytes bytes = Bytes(whole(dataset, "bytes"));
  plan.datasets.push_back({plain(dataset.value("id", "?")).substr(0, kIdShown), bytes});
  plan.demands.datasets.push_back(demand);
  PresentCache& present = *plan.present;
  present.division.push_back(Bytes(whole(dataset, "share")));
  demand.window = Bytes(whole(dataset, "window"));
  present.demands.datasets.push_back(demand);
  const double missing = cache::missing_part(demand.need, demand.window, present.division.back());
  const double length = static_cast<double>(bytes.value) /
                        static_cast<double>(std::max<std::uint64_t>(1, whole(dataset, "items")));
  for (const auto& [job, ranks] : jobs_of(dataset)) {
    plan.jobs.push_back(
        {ranks.name, static_cast<double>(ranks.items) * length, false, ranks.fed ? missing : 0});
    plan.demands.jobs.push_back(
        {number, items_per_second(ranks) * length, its.value("weight", 1.0)});
  }
}

}  // namespace

Result<Plan> running_plan(const Json& status, std::vector<Bytes> caches) {
  const Json& disk = status["disk"];
  Plan plan;
  plan.caches = std::move(caches);
  PresentCache& present = plan.present.emplace();
  present.size = Bytes(whole(disk, "limit_now"));
  present.demands.budget = Bytes(whole(disk, "shared"));
  plan.reserve = present.size - std::min(present.size, present.demands.budget);
  std::map<std::uint64_t, std::size_t> links;
  for (const Json& dataset : status["datasets"]) {
    if (dataset.contains("demand")) add_dataset(plan, links, dataset);
  }
  if (plan.jobs.empty()) {
    return error(Code::kNotFound,
                 "no job is running over this cache; start one, or describe it: a file, or "
                 "--bytes, --link and --cache");
  }
  present.demands.jobs = plan.demands.jobs;
  present.demands.links = plan.demands.links;
  return plan;
}

}  // namespace quiver
