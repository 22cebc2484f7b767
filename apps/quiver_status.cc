// What is cached, who reads it and how well; and the end of the daemon.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/text.h"
#include "cache/client/daemon_link.h"
#include "exit_status.h"
#include "io/process.h"
#include "quiver_commands.h"
#include "quiver_text.h"

namespace quiver {

namespace {

using Json = nlohmann::json;

std::uint64_t number(const Json& json, const char* name) {
  return json.value(name, std::uint64_t{0});
}

Bytes size(const Json& json, const char* name) {
  return Bytes(number(json, name));
}

std::string seconds_as_text(std::uint64_t seconds) {
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
}

void print_job(const Json& job) {
  fmt::print(
      "    {}{}: rank {} of {}, epoch {}, step {} of {}, {:.0f} % hits, waited {:.1f} s for "
      "the link, {:.1f} s for decoding\n",
      job.value("name", "job"), job.value("leader", false) ? " (leads)" : "", number(job, "rank"),
      number(job, "world"), number(job, "epoch"), count(number(job, "step")),
      count(number(job, "steps")), 100 * job.value("hit_ratio", 0.0),
      job.value("waited_link_s", 0.0), job.value("waited_decode_s", 0.0));
}

void print_dataset(const Json& dataset) {
  fmt::print("  dataset {}{}\n", dataset.value("id", "?"),
             dataset.value("in_use", false) ? "" : " (idle)");
  const std::uint64_t here = number(dataset, "items_here");
  if (!dataset.contains("items")) {
    fmt::print("    {} here, {}\n", count_of(here, "item"),
               format_bytes(size(dataset, "bytes_here")));
    return;
  }
  fmt::print("    {} of {} here, {}\n", count(here), count_of(number(dataset, "items"), "item"),
             part_of(size(dataset, "bytes_here"), size(dataset, "bytes")));
  if (const std::uint64_t pinned = number(dataset, "pinned_items"); pinned != 0) {
    fmt::print("    pinned: {} of {} here, {}; window {}\n",
               count(number(dataset, "pinned_items_here")), count_of(pinned, "item"),
               part_of(size(dataset, "pinned_bytes_here"), size(dataset, "pinned_bytes")),
               format_bytes(size(dataset, "window")));
  }
  const std::uint64_t reads = number(dataset, "origin_reads");
  const std::uint64_t errors = number(dataset, "origin_errors");
  if (reads + errors != 0) {
    fmt::print("    fetched since it was opened: {} in {}, {}\n",
               format_bytes(size(dataset, "origin_bytes")), count_of(reads, "read"),
               count_of(errors, "error"));
  } else if (here != 0) {
    fmt::print(
        "    nothing had to be fetched since it was opened: a digest or an earlier job "
        "brought it\n");
  }
  for (const Json& job : dataset["jobs"]) print_job(job);
}

void print_status(const Json& status, bool degraded) {
  fmt::print("quiverd {} (pid {}), up {}, in {}\n", status.value("version", "?"),
             number(status, "pid"), seconds_as_text(number(status, "uptime_s")),
             status.value("cache_directory", "?"));
  const Json &disk = status["disk"], &memory = status["memory"];
  fmt::print("  {} on disk, {} of memory\n", part_of(size(disk, "allocated"), size(disk, "limit")),
             part_of(size(memory, "used"), size(memory, "limit")));
  if (degraded) fmt::print("  degraded: {}\n", status.value("reason", "?"));
  for (const Json& dataset : status["datasets"]) print_dataset(dataset);
  const Json& unclaimed = status["unclaimed"];
  if (const std::uint64_t items = number(unclaimed, "items"); items != 0) {
    fmt::print("  not yet of a dataset: {}, {}; a digest brought it, the next job takes it over\n",
               format_bytes(size(unclaimed, "bytes")), count_of(items, "item"));
  } else if (status["datasets"].empty()) {
    fmt::print("  nothing is cached yet\n");
  }
}

}  // namespace

Result<Json> status_of(const Command& command, cache::Greeted& daemon, Duration patience) {
  const auto reply =
      TRY(ask_daemon<cache::StatusReply>(daemon, cache::Request::kStatus, cache::FetchRequest{},
                                         command.environment.clock, {}, patience));
  Json status = Json::parse(reply.json, nullptr, false);
  for (const char* part : {"disk", "memory", "datasets", "unclaimed"}) {
    if (status.is_object() && status.contains(part)) continue;
    return error(Code::kVersion,
                 "the daemon's status lacks '{}': it is of another version; restart it with "
                 "'quiver stop'",
                 part);
  }
  return status;
}

Result<int> run_status(const Command& command) {
  auto daemon = TRY(daemon_of(command, false));
  const Json status = TRY(status_of(command, daemon));
  const bool degraded = status.value("state", "ok") != "ok";
  if (command.json) {
    print_json(status);
  } else {
    print_status(status, degraded);
  }
  return degraded ? kExitDegraded : 0;
}

// Whoever stops a daemon may go on to remove its directory.
static Status wait_for_end(const Command& command, std::uint64_t pid) {
  const auto& env = command.environment;
  const Instant deadline = env.clock.now() + std::chrono::seconds(15);
  while (env.files.stat(fmt::format("/proc/{}", pid))) {
    if (command.stop.stop_requested()) {
      return error(Code::kCancelled, "interrupted; the daemon (pid {}) is stopping", pid);
    }
    if (env.clock.now() >= deadline) {
      return error(Code::kTimeout, "the daemon (pid {}) has not ended within 15 s; look at its log",
                   pid);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

Result<int> run_stop(const Command& command) {
  const auto& env = command.environment;
  const auto address = TRY(cache::daemon_address(command.settings, env.files, io::environment));
  const auto pid = cache::stop_daemon(address, env.clock.now() + std::chrono::seconds(10));
  if (!pid && pid.error().code == Code::kUnreachable) return no_daemon(address);
  if (!pid) return pid.error();
  TRY(wait_for_end(command, *pid));
  if (command.json) {
    print_json(Json{{"stopped", *pid}});
  } else {
    fmt::print("stopped the daemon (pid {})\n", *pid);
  }
  return 0;
}

}  // namespace quiver
