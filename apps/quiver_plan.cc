// What each job's epoch will take with a cache of some size: by the code by which the daemon
// divides its own.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cache/policy/allocation.h"
#include "cache/policy/share_reason.h"
#include "io/file.h"
#include "plan_file.h"
#include "quiver_commands.h"
#include "quiver_text.h"

namespace quiver {

namespace {

using Json = nlohmann::json;

struct Answer {
  Bytes cache;
  cache::Demands demands;
  cache::Division division;
  cache::Forecast steady, first;  // with the cache filled; while it is filled
};

Answer answer_for(const Plan& plan, Bytes cache) {
  Answer out;
  out.cache = cache;
  out.demands = plan.demands;
  out.demands.budget = cache;
  out.division = cache::allocate(out.demands);
  out.steady = cache::forecast(out.demands, out.division);
  out.first = cache::forecast(out.demands, cache::Division(out.division.size(), Bytes(0)));
  return out;
}

double epoch_seconds(const Plan& plan, const cache::Forecast& forecast, std::size_t job) {
  const std::size_t dataset = plan.demands.jobs[job].dataset;
  return static_cast<double>(plan.bytes[dataset].value) / forecast.jobs[job];
}

std::string time_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string rate_text(double bytes_per_second) {
  return format_bytes(Bytes(static_cast<std::uint64_t>(bytes_per_second))) + "/s";
}

Json dataset_json(const Plan& plan, const Answer& answer, std::size_t d) {
  const auto& its = answer.steady.datasets[d];
  return {{"name", plan.datasets[d]},
          {"bytes", plan.bytes[d].value},
          {"share", answer.division[d].value},
          {"cached_part", 1 - its.missing},
          {"link_bytes_per_s", its.link},
          {"share_reason", share_reason(answer.demands, answer.division, answer.steady, d)}};
}

Json job_json(const Plan& plan, const Answer& answer, std::size_t j) {
  const cache::JobDemand& demand = plan.demands.jobs[j];
  Json out{{"name", plan.jobs[j]},
           {"dataset", plan.datasets[demand.dataset]},
           {"first_epoch_s", epoch_seconds(plan, answer.first, j)},
           {"epoch_s", epoch_seconds(plan, answer.steady, j)},
           {"bytes_per_s", answer.steady.jobs[j]},
           {"own_bytes_per_s", demand.rate}};
  if (plan.unlimited[j]) out["own_bytes_per_s"] = nullptr;
  return out;
}

Json answer_json(const Plan& plan, const Answer& answer) {
  Json datasets = Json::array(), jobs = Json::array();
  for (std::size_t d = 0; d < plan.datasets.size(); ++d) {
    datasets.push_back(dataset_json(plan, answer, d));
  }
  for (std::size_t j = 0; j < plan.jobs.size(); ++j) jobs.push_back(job_json(plan, answer, j));
  return {{"cache", answer.cache.value},
          {"speed", answer.steady.speed},
          {"datasets", std::move(datasets)},
          {"jobs", std::move(jobs)}};
}

void print_answer(const Plan& plan, const Answer& answer) {
  fmt::print("with a cache of {}:\n", format_bytes(answer.cache));
  for (std::size_t d = 0; d < plan.datasets.size(); ++d) {
    const auto& its = answer.steady.datasets[d];
    fmt::print("  {}: {} of the cache, {:.0f} % of it stays; {}\n", plan.datasets[d],
               format_bytes(answer.division[d]), 100 * (1 - its.missing),
               share_reason(answer.demands, answer.division, answer.steady, d));
    for (std::size_t j = 0; j < plan.jobs.size(); ++j) {
      const cache::JobDemand& demand = plan.demands.jobs[j];
      if (demand.dataset != d) continue;
      fmt::print("    {}: {} an epoch, {} the first; {}{}\n", plan.jobs[j],
                 time_text(epoch_seconds(plan, answer.steady, j)),
                 time_text(epoch_seconds(plan, answer.first, j)), rate_text(answer.steady.jobs[j]),
                 plan.unlimited[j] ? "" : fmt::format(" of its own {}", rate_text(demand.rate)));
    }
  }
}

}  // namespace

Result<int> run_plan(const Command& command, const PlanArguments& arguments) {
  Plan plan;
  if (arguments.file.empty()) {
    plan = TRY(plan_of(arguments));
  } else {
    const std::string text = TRY(io::read_file(command.environment.files, arguments.file, 16_MiB));
    plan = TRY(read_plan(text, arguments.file));
  }
  Json answers = Json::array();
  for (const Bytes cache : plan.caches) {
    const Answer answer = answer_for(plan, cache);
    if (command.json) {
      answers.push_back(answer_json(plan, answer));
    } else {
      print_answer(plan, answer);
    }
  }
  if (command.json) print_json({{"plans", std::move(answers)}});
  return 0;
}

}  // namespace quiver
