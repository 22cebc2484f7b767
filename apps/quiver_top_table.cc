#include "quiver_top_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "quiver_text.h"

namespace quiver {

namespace {

using Json = nlohmann::json;

constexpr double kWaits = 0.05;  // of the time: below it a loop is said not to wait

double real(const Json& json, const char* name) {
  return json.value(name, 0.0);
}

std::uint64_t whole(const Json& json, const char* name) {
  return json.value(name, std::uint64_t{0});
}

const Json& part(const Json& json, const char* name) {
  static const Json kNone = Json::object();
  const auto found = json.find(name);
  return found == json.end() || !found->is_object() ? kNone : *found;
}

std::string bytes_of(double bytes) {
  return format_bytes(Bytes(static_cast<std::uint64_t>(std::max(bytes, 0.0))));
}

std::string rate_of(double per_second) {
  if (per_second <= 0) return "0";
  return per_second < 10 ? fmt::format("{:.1f}", per_second)
                         : count(static_cast<std::uint64_t>(per_second + 0.5));
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

bool starts_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

// Rows of equal length, of which the first is the heading.
std::vector<std::string> table(const std::vector<std::vector<std::string>>& rows,
                               std::size_t left_columns) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], columns_of(row[c]));
  }
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - columns_of(row[c]), ' ');
      if (c != 0) line += "  ";
      line += c < left_columns ? row[c] + space : space + row[c];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

// Shares of what the loop got by whose work it was here; of the last seconds, or else of all.
Json kinds_of(const Json& rank) {
  const Json &recent = part(rank, "recent"), &served = part(rank, "served");
  const bool now = real(recent, "items_per_s") > 0;
  Json kinds;
  for (const char* kind : {"pinned", "shared", "own", "direct"}) {
    const double some = now ? real(recent, (std::string(kind) + "_per_s").c_str())
                            : static_cast<double>(whole(served, kind));
    const double all =
        now ? real(recent, "items_per_s") : static_cast<double>(whole(served, "items"));
    kinds[kind] = all > 0 ? some / all : 0.0;
  }
  return kinds;
}

Json job_of(const Json& dataset, const Json& rank) {
  const Json &recent = part(rank, "recent"), &served = part(rank, "served");
  const Json& pace = part(rank, "pace");
  const double items = static_cast<double>(whole(served, "items"));
  const double length = items > 0 ? static_cast<double>(whole(served, "bytes")) / items : 0;
  const double to_take = static_cast<double>(whole(rank, "to_take"));
  return {{"dataset", dataset.value("id", "?")},
          {"name", rank.value("name", "job")},
          {"job", whole(rank, "job")},
          {"rank", whole(rank, "rank")},
          {"world", whole(rank, "world")},
          {"leads", rank.value("leader", false)},
          {"strict", rank.value("strict", false)},
          {"epoch", whole(rank, "epoch")},
          {"taken", whole(rank, "taken")},
          {"to_take", whole(rank, "to_take")},
          {"progress", to_take > 0 ? static_cast<double>(whole(rank, "taken")) / to_take : 0.0},
          {"samples_per_s", real(recent, "items_per_s")},
          {"bytes_per_s", real(recent, "bytes_per_s")},
          {"could_per_s", real(pace, "items_per_s")},
          {"could_error", real(pace, "error")},
          {"could_bytes_per_s", real(pace, "items_per_s") * length},
          {"kinds", kinds_of(rank)},
          {"waiting_link", real(recent, "waiting_link")},
          {"waiting_decode", real(recent, "waiting_decode")}};
}

std::string called(const Json& job) {
  std::string name = job.value("name", "job");
  if (whole(job, "world") > 1)
    name += fmt::format(" {}/{}", whole(job, "rank"), whole(job, "world"));
  return name;
}

// Why a rank is as fast as it is. `missing`: what of its dataset is not to stay in the cache.
Json why_job(const Json& job, std::size_t jobs_of_dataset, Bytes missing) {
  Json why = Json::array();
  const double link = real(job, "waiting_link"), decode = real(job, "waiting_decode");
  const double could = real(job, "could_per_s");
  const std::string pace =
      fmt::format("{} samples/s ({}/s)", rate_of(could), bytes_of(real(job, "could_bytes_per_s")));
  if (real(job, "samples_per_s") <= 0) {
    why.push_back("took nothing in the last seconds");
  } else if (link >= kWaits) {
    std::string line = fmt::format("waits for bytes {} of the time", percent(link));
    if (could > 0) line += fmt::format("; without that it would do {}", pace);
    why.push_back(line);
  } else if (decode >= kWaits) {
    why.push_back(
        fmt::format("waits for decoding {} of the time: more workers may help, more cache would "
                    "change nothing",
                    percent(decode)));
  } else if (could > 0) {
    why.push_back(
        fmt::format("is bound by its own compute at {}: more cache would change nothing", pace));
  } else {
    why.push_back("does not wait for bytes; how fast it could be is not known yet");
  }
  const bool leads = job.value("leads", false);
  if (leads && jobs_of_dataset > 1) why.push_back("leads: what is fetched follows its order");
  const bool rides = !leads && jobs_of_dataset > 1;
  if (job.value("strict", false) && rides && missing.value > 0) {
    why.push_back(
        fmt::format("has a strict order and does not lead: what others fetch comes too early or "
                    "too late for it, so that up to {} an epoch are read for it alone",
                    format_bytes(missing)));
  }
  if (const double direct = real(job["kinds"], "direct"); direct >= 0.01) {
    why.push_back(fmt::format("reads {} past the cache, from the origin itself", percent(direct)));
  }
  return why;
}

constexpr std::pair<const char*, const char*> kAgain[] = {
    {"new_epoch", "for jobs that began an epoch at another time than the leader"},
    {"left_staging", "because it left the window before every job had had it"},
    {"no_room", "because there was no room to keep it"},
    {"damaged", "because the copy was bad"},
    {"share_moved", "because what the dataset keeps changed"},
    {"strict", "for a strict job that does not lead"}};

Json why_dataset(const Json& dataset) {
  Json why = Json::array();
  if (const std::string reason = dataset.value("share_reason", ""); !reason.empty()) {
    why.push_back(reason);
  }
  const Json& again = part(dataset, "read_again");
  for (const auto& [name, words] : kAgain) {
    const std::uint64_t bytes = whole(again, name);
    if (bytes != 0)
      why.push_back(fmt::format("read {} again {}", format_bytes(Bytes(bytes)), words));
  }
  return why;
}

Json dataset_of(const Json& dataset) {
  Json row;
  for (const char* name : {"bytes", "bytes_here", "share", "pinned_bytes", "pinned_bytes_here",
                           "window", "staged", "origin_bytes"}) {
    row[name] = whole(dataset, name);
  }
  row["id"] = dataset.value("id", "?");
  row["origin_bytes_per_s"] = real(dataset, "origin_bytes_per_s");
  row["read_again"] = part(dataset, "read_again");
  row["why"] = why_dataset(dataset);
  return row;
}

std::uint64_t read_again(const Json& dataset) {
  std::uint64_t sum = 0;
  for (const Json& bytes : part(dataset, "read_again")) sum += bytes.get<std::uint64_t>();
  return sum;
}

std::vector<std::string> dataset_lines(const Json& datasets) {
  std::vector<std::vector<std::string>> rows{
      {"DATASET", "SIZE", "HERE", "SHARE", "PINNED", "WINDOW", "ORIGIN", "READ", "AGAIN"}};
  for (const Json& d : datasets) {
    const auto size = [&](const char* name) { return format_bytes(Bytes(whole(d, name))); };
    rows.push_back({plain(d.value("id", "?")).substr(0, 12), size("bytes"), size("bytes_here"),
                    size("share"), size("pinned_bytes_here"), size("window"),
                    bytes_of(real(d, "origin_bytes_per_s")) + "/s", size("origin_bytes"),
                    format_bytes(Bytes(read_again(d)))});
  }
  return table(rows, 1);
}

std::vector<std::string> job_lines(const Json& jobs) {
  std::vector<std::vector<std::string>> rows{{"JOB", "DATASET", "EPOCH", "DONE", "SAMPLES/S",
                                              "COULD", "PINNED", "SHARED", "OWN", "DIRECT",
                                              "WAITS"}};
  for (const Json& j : jobs) {
    const Json& kinds = j["kinds"];
    const double could = real(j, "could_per_s");
    rows.push_back({plain(called(j)) + (j.value("leads", false) ? " *" : ""),
                    plain(j.value("dataset", "?")).substr(0, 12), count(whole(j, "epoch")),
                    percent(real(j, "progress")), rate_of(real(j, "samples_per_s")),
                    could > 0 ? rate_of(could) : "?", percent(real(kinds, "pinned")),
                    percent(real(kinds, "shared")), percent(real(kinds, "own")),
                    percent(real(kinds, "direct")), percent(real(j, "waiting_link"))});
  }
  return table(rows, 2);
}

}  // namespace

std::string_view first_columns(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if (!starts_character(text[end])) continue;
    if (columns-- == 0) break;
  }
  return text.substr(0, end);
}

Json top_of(const Json& status) {
  Json datasets = Json::array(), jobs = Json::array();
  for (const Json& dataset : status["datasets"]) {
    if (!dataset.contains("items")) continue;  // nobody has opened it
    datasets.push_back(dataset_of(dataset));
    std::set<std::uint64_t> numbers;
    for (const Json& rank : dataset["jobs"]) numbers.insert(whole(rank, "job"));
    for (const Json& rank : dataset["jobs"]) {
      Json job = job_of(dataset, rank);
      const Bytes pinned(whole(dataset, "pinned_bytes"));
      const Bytes bytes(whole(dataset, "bytes"));
      job["why"] = why_job(job, numbers.size(), bytes - std::min(pinned, bytes));
      jobs.push_back(std::move(job));
    }
  }
  const Json &disk = status["disk"], &memory = status["memory"];
  return {{"daemon",
           {{"version", status.value("version", "?")},
            {"pid", whole(status, "pid")},
            {"uptime_s", whole(status, "uptime_s")},
            {"disk_limit", whole(disk, "limit_now")},
            {"disk_used", whole(disk, "allocated")},
            {"memory_limit", whole(memory, "limit")},
            {"memory_used", whole(memory, "used")},
            {"state", status.value("state", "ok")},
            {"reason", status.value("reason", "")}}},
          {"datasets", std::move(datasets)},
          {"jobs", std::move(jobs)}};
}

std::vector<std::string> top_lines(const Json& top) {
  const Json& daemon = top["daemon"];
  const auto size = [&](const char* name) { return Bytes(whole(daemon, name)); };
  double origin = 0;
  for (const Json& dataset : top["datasets"]) origin += real(dataset, "origin_bytes_per_s");
  std::vector<std::string> lines{
      fmt::format("{} (pid {}): {} on disk, {} of memory, {}/s from origins",
                  plain(daemon.value("version", "?")), whole(daemon, "pid"),
                  part_of(size("disk_used"), size("disk_limit")),
                  part_of(size("memory_used"), size("memory_limit")), bytes_of(origin))};
  if (daemon.value("state", "ok") != "ok") {
    lines.push_back("degraded: " + plain(daemon.value("reason", "?")));
  }
  const auto add = [&](std::vector<std::string> more) {
    lines.emplace_back();
    lines.insert(lines.end(), more.begin(), more.end());
  };
  if (top["datasets"].empty()) {
    add({"no dataset is open: start a job"});
    return lines;
  }
  add(dataset_lines(top["datasets"]));
  add(top["jobs"].empty() ? std::vector<std::string>{"no job runs"} : job_lines(top["jobs"]));
  std::vector<std::string> why;
  for (const Json& job : top["jobs"]) {
    for (const Json& line : job["why"]) {
      why.push_back(plain(called(job)) + " " + plain(line.get<std::string>()));
    }
  }
  for (const Json& dataset : top["datasets"]) {
    for (const Json& line : dataset["why"]) {
      why.push_back(plain(dataset.value("id", "?")).substr(0, 12) + ": " +
                    plain(line.get<std::string>()));
    }
  }
  if (!why.empty()) add(why);
  return lines;
}

}  // namespace quiver
