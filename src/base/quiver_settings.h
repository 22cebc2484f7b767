// The settings of Quiver, of client and daemon alike. Each field's documentation is in the table of
// quiver_settings.cc, from which the reference page and `explain` are made.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "base/share_rules.h"

namespace quiver {

enum class Verify { kFill, kSampled, kAlways };
enum class DigestWhen { kFirst, kLazy };
enum class Addressing { kAuto, kPath, kVirtual };

// Empty text and an empty SizeOrShare mean: chosen where it is used, by the rule in the table.
struct Settings {
  bool enabled = true;

  std::string cache_dir;
  SizeOrShare disk_limit;
  double disk_floor = 0.05;
  Bytes memory_limit = 1_GiB;
  SizeOrShare window;
  std::vector<ShareRule> shares;
  Verify verify = Verify::kSampled;
  std::string manifest_dir;
  DigestWhen digest = DigestWhen::kFirst;

  int fetch_concurrency = 16;
  int max_connections = 1024;
  Bytes rate_limit;  // per second; 0: none
  std::string endpoint;
  std::string region;
  Addressing addressing = Addressing::kAuto;
  std::string ca_file;
  bool verify_tls = true;

  std::string socket;
  std::chrono::seconds idle_timeout{600};
  std::string metrics;  // empty: none
  LogLevel log_level = LogLevel::kInfo;

  std::vector<Provenance> sources;  // of each field, in the order of the table; empty: all defaults
};

const std::vector<Field<Settings>>& settings_fields();

using Getenv = std::function<std::optional<std::string>(const std::string&)>;

// Where the settings file lies: $QUIVER_CONFIG (which must exist), else quiver/quiver.toml below
// $XDG_CONFIG_HOME, else below ~/.config. Empty without any of them.
struct SettingsPath {
  std::string path;
  bool must_exist = false;
};
SettingsPath settings_path(const Getenv& environment);

// `names`: those of all environment variables. QUIVER=off disables Quiver whatever else is set.
Result<Settings> load_settings(const std::map<std::string, std::string>& arguments,
                               const Getenv& environment, const std::vector<std::string>& names,
                               const std::optional<SettingsFile>& file);

// Every setting with its value, source, unit and meaning.
std::string explain(const Settings& settings);
// The reference page, in Markdown.
std::string settings_reference();

}  // namespace quiver
