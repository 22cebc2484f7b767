// Every setting, its value and where that came from; and what those left open come to here.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cache/client/cache_directory.h"
#include "cache/client/digest.h"
#include "cache/client/user_settings.h"
#include "cache/server/server.h"
#include "io/process.h"
#include "quiver_commands.h"
#include "quiver_text.h"

namespace quiver {

namespace {

using Json = nlohmann::json;

// What holds now where a setting does not say it in full.
struct Resolved {
  std::string value;
  std::string from;  // empty: the setting's own source
};

using ResolvedBySetting = std::map<std::string, Resolved, std::less<>>;

void resolve_cache(const Command& command, ResolvedBySetting& out) {
  const Settings& settings = command.settings;
  io::Files& files = command.environment.files;
  const auto address = cache::daemon_address(settings, files, io::environment);
  if (!address) return;
  if (settings.cache_dir.empty()) out["cache_dir"].value = address->cache_directory;
  if (settings.socket.empty()) out["socket"].value = address->socket;
  auto daemon = daemon_of(command, false);
  const auto status = daemon ? status_of(command, *daemon) : Result<Json>(daemon.error());
  if (status) {
    const Bytes limit((*status)["disk"].value("limit", std::uint64_t{0}));
    if (settings.disk_limit.size == limit) return;
    out["disk_limit"] = {format_bytes(limit),
                         fmt::format("the running daemon (pid {}), from the settings of whoever "
                                     "started it",
                                     daemon->hello.pid)};
    return;
  }
  if (settings.disk_limit.size) return;
  const auto limit = cache::disk_limit_of(settings, address->cache_directory, files, Bytes(0));
  if (limit) out["disk_limit"].value = format_bytes(*limit);
}

ResolvedBySetting resolve(const Command& command) {
  ResolvedBySetting out;
  resolve_cache(command, out);
  if (command.settings.manifest_dir.empty()) {
    out["manifest_dir"].value = cache::manifest_folder(command.settings);
  }
  const auto origin =
      cache::user_origin("s3://bucket", command.settings, {}, command.environment.files);
  if (!origin) return out;
  const std::string from = "the environment or the profile of AWS";
  if (command.settings.endpoint.empty() && !origin->endpoint.empty()) {
    out["endpoint"] = {origin->endpoint, from};
  }
  if (command.settings.region.empty() && !origin->region.empty()) {
    out["region"] = {origin->region, from};
  }
  return out;
}

void print_setting(const FieldInfo& info, const std::string& value, const Provenance& source,
                   const Resolved* resolved) {
  if (resolved == nullptr) return fmt::print("{}", explain_field(info, value, source));
  Provenance from = source;
  if (!resolved->from.empty()) {
    from.where = resolved->from;
    if (source.source != Source::kDefault) {
      from.where +=
          fmt::format("; your own {} ({}) counts when the next one starts", value, source.where);
    }
  } else if (value.empty()) {
    from.where = fmt::format("default ({})", info.when_empty);
  } else {
    from.where += fmt::format(" ({})", value);
  }
  fmt::print("{}", explain_field(info, resolved->value, from));
}

}  // namespace

Result<int> run_explain(const Command& command) {
  const ResolvedBySetting resolved = resolve(command);
  Json out = Json::object();
  const auto& fields = settings_fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto& sources = command.settings.sources;
    const Provenance source = i < sources.size() ? sources[i] : Provenance{};
    const std::string value = fields[i].get(command.settings);
    const auto found = resolved.find(fields[i].info.name);
    const Resolved* its = found == resolved.end() ? nullptr : &found->second;
    if (!command.json) {
      print_setting(fields[i].info, value, source, its);
      continue;
    }
    out[std::string(fields[i].info.name)] = {{"value", value},
                                             {"resolved", its == nullptr ? value : its->value},
                                             {"source", source.where},
                                             {"unit", std::string(fields[i].info.unit)},
                                             {"meaning", std::string(fields[i].info.doc)}};
  }
  if (command.json) print_json(out);
  return 0;
}

}  // namespace quiver
