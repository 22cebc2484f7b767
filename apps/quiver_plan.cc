// What each job's epoch will take with a cache of some size: by the code by which the daemon
// divides its own.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "cache/policy/allocation.h"
#include "cache/policy/share_reason.h"
#include "io/file.h"
#include "plan_file.h"
#include "quiver_commands.h"
#include "quiver_text.h"
#include "running_plan.h"

namespace quiver {

namespace {

using Json = nlohmann::json;

struct Answer {
  Bytes cache;
  bool now = false;  // as the cache stands
  cache::Demands demands;
  cache::Division division;
  cache::Forecast steady, first;  // with the cache filled; while it is filled
};

void forecast(Answer& answer) {
  const cache::Division empty(answer.division.size(), Bytes(0));
  answer.steady = cache::forecast(answer.demands, answer.division);
  answer.first = cache::forecast(answer.demands, empty);
}

Answer answer_for(const Plan& plan, Bytes cache) {
  Answer out;
  out.cache = cache;
  out.demands = plan.demands;
  out.demands.budget = cache - std::min(plan.reserve, cache / 4);
  out.division = cache::allocate(out.demands);
  forecast(out);
  return out;
}

Answer answer_for(const PresentCache& present) {
  Answer out{present.size, true, present.demands, present.division, {}, {}};
  forecast(out);
  return out;
}

struct Epoch {
  std::optional<double> seconds, first_seconds;
  const char* unknown = "";  // why not, and what to do
};

Epoch epoch_of(const Plan& plan, const Answer& answer, std::size_t j) {
  const cache::JobDemand& job = answer.demands.jobs[j];
  const std::size_t d = job.dataset;
  Epoch out;
  if (job.rate <= 0) {
    out.unknown =
        "how fast it computes is not known yet, and it counts as none: ask again when it has run "
        "some epochs";
    return out;
  }
  const bool link = answer.demands.links[answer.demands.datasets[d].link] > 0;
  if (link || answer.steady.datasets[d].missing <= plan.jobs[j].fed_missing) {
    out.seconds = plan.jobs[j].epoch / answer.steady.jobs[j];
  }
  if (link) out.first_seconds = plan.jobs[j].epoch / answer.first.jobs[j];
  if (!out.seconds) {
    out.unknown =
        "what its link gives is not known yet: ask again when it has run some epochs, with steps "
        "that wait for bytes";
  }
  return out;
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
  return {{"name", plan.datasets[d].name},
          {"bytes", plan.datasets[d].bytes.value},
          {"share", answer.division[d].value},
          {"cached_part", 1 - its.missing},
          {"link_bytes_per_s", its.link},
          {"share_reason", share_reason(answer.demands, answer.division, answer.steady, d)}};
}

Json known(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json job_json(const Plan& plan, const Answer& answer, std::size_t j) {
  const cache::JobDemand& demand = answer.demands.jobs[j];
  const Epoch epoch = epoch_of(plan, answer, j);
  const bool own = demand.rate > 0 && !plan.jobs[j].unlimited;
  Json out{{"name", plan.jobs[j].name},
           {"dataset", plan.datasets[demand.dataset].name},
           {"first_epoch_s", known(epoch.first_seconds)},
           {"epoch_s", known(epoch.seconds)},
           {"bytes_per_s", epoch.seconds ? Json(answer.steady.jobs[j]) : Json(nullptr)},
           {"own_bytes_per_s", own ? Json(demand.rate) : Json(nullptr)}};
  if (!epoch.seconds) out["unknown"] = epoch.unknown;
  return out;
}

Json answer_json(const Plan& plan, const Answer& answer) {
  Json datasets = Json::array(), jobs = Json::array();
  for (std::size_t d = 0; d < plan.datasets.size(); ++d) {
    datasets.push_back(dataset_json(plan, answer, d));
  }
  for (std::size_t j = 0; j < plan.jobs.size(); ++j) jobs.push_back(job_json(plan, answer, j));
  return {{"cache", answer.cache.value},
          {"now", answer.now},
          {"speed", answer.steady.speed},
          {"datasets", std::move(datasets)},
          {"jobs", std::move(jobs)}};
}

std::string epoch_text(const Plan& plan, const Answer& answer, std::size_t j) {
  const Epoch epoch = epoch_of(plan, answer, j);
  if (!epoch.seconds) return epoch.unknown;
  std::string text = time_text(*epoch.seconds) + " an epoch";
  if (epoch.first_seconds) text += fmt::format(", {} the first", time_text(*epoch.first_seconds));
  text += "; " + rate_text(answer.steady.jobs[j]);
  if (!plan.jobs[j].unlimited) text += " of its own " + rate_text(answer.demands.jobs[j].rate);
  return text;
}

void print_answer(const Plan& plan, const Answer& answer) {
  fmt::print("{}with a cache of {}:\n", answer.now ? "now, " : "", format_bytes(answer.cache));
  for (std::size_t d = 0; d < plan.datasets.size(); ++d) {
    const auto& its = answer.steady.datasets[d];
    fmt::print("  {}: {} of the cache, {:.0f} % of it stays; {}\n", plan.datasets[d].name,
               format_bytes(answer.division[d]), 100 * (1 - its.missing),
               share_reason(answer.demands, answer.division, answer.steady, d));
    for (std::size_t j = 0; j < plan.jobs.size(); ++j) {
      if (answer.demands.jobs[j].dataset != d) continue;
      fmt::print("    {}: {}\n", plan.jobs[j].name, epoch_text(plan, answer, j));
    }
  }
}

Result<Plan> plan_of_all(const Command& command, const PlanArguments& arguments) {
  if (arguments.running) {
    auto caches = TRY(plan_caches(arguments.caches));
    auto daemon = TRY(daemon_of(command, false));
    return running_plan(TRY(status_of(command, daemon)), std::move(caches));
  }
  if (arguments.file.empty()) return plan_of(arguments);
  const std::string text = TRY(io::read_file(command.environment.files, arguments.file, 16_MiB));
  return read_plan(text, arguments.file);
}

}  // namespace

Result<int> run_plan(const Command& command, const PlanArguments& arguments) {
  const Plan plan = TRY(plan_of_all(command, arguments));
  std::vector<Answer> answers;
  if (plan.present) answers.push_back(answer_for(*plan.present));
  for (const Bytes cache : plan.caches) answers.push_back(answer_for(plan, cache));
  Json plans = Json::array();
  for (const Answer& answer : answers) {
    if (command.json) {
      plans.push_back(answer_json(plan, answer));
    } else {
      print_answer(plan, answer);
    }
  }
  if (command.json) print_json({{"plans", std::move(plans)}});
  return 0;
}

}  // namespace quiver
