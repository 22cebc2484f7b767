// What is cached, who reads it and how well; and the two small commands to the daemon.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/text.h"
#include "exit_status.h"
#include "quiver_commands.h"

namespace quiver {

namespace {

using Json = nlohmann::json;

std::string size(const Json& json, const char* name) {
  return format_bytes(Bytes(json.value(name, std::uint64_t{0})));
}

void print_job(const Json& job) {
  fmt::print(
      "    {}{}: rank {} of {}, epoch {}, step {} of {}, {:.0f} % hits, waited {:.1f} s for "
      "the link, {:.1f} s for decoding\n",
      job.value("name", "job"), job.value("leader", false) ? " (leads)" : "", job.value("rank", 0),
      job.value("world", 1), job.value("epoch", std::uint64_t{0}), job.value("step", 0),
      job.value("steps", 0), 100 * job.value("hit_ratio", 0.0), job.value("waited_link_s", 0.0),
      job.value("waited_decode_s", 0.0));
}

void print_dataset(const Json& dataset) {
  fmt::print("  {}{}\n", dataset.value("id", "?"), dataset.value("in_use", false) ? "" : " (idle)");
  if (!dataset.contains("items")) {
    fmt::print("    {} items here, {}\n", dataset.value("items_here", 0),
               size(dataset, "bytes_here"));
    return;
  }
  fmt::print("    {} of {} items here, {} of {}; {} pinned, window {}\n",
             dataset.value("items_here", 0), dataset.value("items", 0), size(dataset, "bytes_here"),
             size(dataset, "bytes"), dataset.value("pinned_items", 0), size(dataset, "window"));
  fmt::print("    {} from the origin in {} reads, {} errors\n", size(dataset, "origin_bytes"),
             dataset.value("origin_reads", 0), dataset.value("origin_errors", 0));
  for (const Json& job : dataset["jobs"]) print_job(job);
}

}  // namespace

Result<int> run_status(const Command& command) {
  auto daemon = TRY(daemon_of(command, false));
  const auto reply = TRY(ask_daemon<cache::StatusReply>(
      daemon, cache::Request::kStatus, cache::FetchRequest{}, command.environment.clock));
  const Json status = Json::parse(reply.json, nullptr, false);
  if (!status.is_object() || !status.contains("disk") || !status.contains("datasets")) {
    return error(Code::kVersion, "the daemon's status cannot be understood; restart it");
  }
  const bool degraded = status.value("state", "ok") != "ok";
  if (command.json) {
    fmt::print("{}\n", reply.json);
  } else {
    fmt::print("quiverd {} (pid {}), up {} s, in {}\n", status.value("version", "?"),
               status.value("pid", 0), status.value("uptime_s", 0),
               status.value("cache_directory", "?"));
    fmt::print("  {} of {} on disk, {} of {} of memory\n", size(status["disk"], "allocated"),
               size(status["disk"], "limit"), size(status["memory"], "used"),
               size(status["memory"], "limit"));
    if (degraded) fmt::print("  degraded: {}\n", status.value("reason", "?"));
    for (const Json& dataset : status["datasets"]) print_dataset(dataset);
  }
  return degraded ? kExitDegraded : 0;
}

// Whoever stops a daemon may go on to remove its directory.
static Status wait_for_end(const Command& command, std::uint64_t pid) {
  const auto& env = command.environment;
  const Instant deadline = env.clock.now() + std::chrono::seconds(15);
  while (env.files.stat(fmt::format("/proc/{}", pid))) {
    if (env.clock.now() >= deadline) {
      return error(Code::kTimeout, "the daemon (pid {}) has not ended within 15 s; look at its log",
                   pid);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

Result<int> run_stop(const Command& command) {
  auto daemon = TRY(daemon_of(command, false));
  TRY(daemon.connection->call(static_cast<std::uint16_t>(cache::Request::kStop), {}, {},
                              command.environment.clock.now() + std::chrono::seconds(10)));
  TRY(wait_for_end(command, daemon.hello.pid));
  if (command.json) {
    fmt::print("{}\n", Json{{"stopped", daemon.hello.pid}}.dump());
  } else {
    fmt::print("stopped the daemon (pid {})\n", daemon.hello.pid);
  }
  return 0;
}

Result<int> run_explain(const Command& command) {
  if (!command.json) {
    fmt::print("{}", explain(command.settings));
    return 0;
  }
  Json out = Json::object();
  const auto& fields = settings_fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto& sources = command.settings.sources;
    out[std::string(fields[i].info.name)] = {
        {"value", fields[i].get(command.settings)},
        {"source", i < sources.size() ? sources[i].where : "default"},
        {"unit", std::string(fields[i].info.unit)},
        {"meaning", std::string(fields[i].info.doc)}};
  }
  fmt::print("{}\n", out.dump());
  return 0;
}

}  // namespace quiver
