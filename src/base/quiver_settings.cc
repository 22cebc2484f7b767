#include "base/quiver_settings.h"

namespace quiver {

namespace {

using S = Settings;

constexpr const char* kSwitch = "QUIVER";
constexpr const char* kConfig = "QUIVER_CONFIG";
// Variables of the tools in this repository, which jobs started by them inherit.
const std::vector<std::string> kOthers{kConfig, "QUIVER_VENV", "QUIVER_JOBS", "QUIVER_PYTHON"};
// Of the tests: QUIVER_TEST_S3 and the like.
constexpr std::string_view kTests = "QUIVER_TEST_";

std::vector<Field<S>> make_fields() {
  using std::chrono::seconds;
  return {
      field(&S::enabled,
            {"enabled", "",
             "Use the cache; false (or QUIVER=off in the environment) reads the origin directly"},
            Switch{}),
      field(&S::cache_dir,
            {"cache_dir", "path", "Where cached bytes lie; never a network file system",
             "node-local scratch: $TMPDIR, /scratch or /local; else /var/tmp/quiver-UID"},
            Text{}),
      field(
          &S::disk_limit,
          {"disk_limit", "bytes, or share of the disk", "The most that the cache occupies on disk",
           "the smaller of 20 % of the disk and what leaves 15 % free"},
          SizeOrPercent{}),
      field(&S::disk_floor,
            {"disk_floor", "share of the disk",
             "Kept free: the cache shrinks when others fill the disk"},
            Percent{0, 0.9}),
      field(&S::memory_limit,
            {"memory_limit", "bytes", "The most memory for views, bitmaps and read-ahead"},
            Size{16_MiB}),
      field(&S::window,
            {"window", "bytes, or share of the dataset",
             "How far staging runs ahead of and behind the leading job",
             "computed from the dataset, the step and the link"},
            SizeOrPercent{}),
      field(&S::shares,
            {"shares", "",
             "What single datasets (by the id that `quiver status` shows) weigh when the cache "
             "divides between them, and the most of it that they may have",
             "each job weighs 1, and no dataset has a limit"},
            ShareRuleList{}),
      field(&S::verify,
            {"verify", "",
             "When an item's checksum is compared: when it arrives; also on its first read and 1 "
             "in 64 later ones; on every read"},
            Choice<Verify>{{{"fill", Verify::kFill},
                            {"sampled", Verify::kSampled},
                            {"always", Verify::kAlways}}}),
      field(&S::manifest_dir,
            {"manifest_dir", "path", "Where manifests are kept",
             "$XDG_DATA_HOME/quiver/manifests, else ~/.local/share/quiver/manifests"},
            Text{}),
      field(&S::digest,
            {"digest", "",
             "When a dataset without a manifest is read for one: first, before training begins; "
             "or lazy, while its first epoch is trained on"},
            Choice<DigestWhen>{{{"first", DigestWhen::kFirst}, {"lazy", DigestWhen::kLazy}}}),
      field(&S::fetch_concurrency,
            {"fetch_concurrency", "", "Requests to an origin at the same time"}, Integer{1, 128}),
      field(&S::max_connections,
            {"max_connections", "",
             "Connections that the daemon serves, of all processes together; each has up to 4 for "
             "each dataset that it reads"},
            Integer{8, 16384}),
      field(&S::rate_limit,
            {"rate_limit", "bytes/s",
             "The most that is read from an origin (its server; for S3 endpoint and bucket; all "
             "directories), by all jobs of the machine together; 0 is no limit"},
            Size{Bytes(0), true}),
      field(&S::endpoint,
            {"endpoint", "URL", "Where S3 is", "that of the environment or the profile, else AWS"},
            Text{}),
      field(&S::region,
            {"region", "", "The region that requests are signed for",
             "that of the environment or the profile, else us-east-1"},
            Text{}),
      field(&S::addressing,
            {"addressing", "",
             "Whether the bucket is in the path or the host name; auto is path where an endpoint "
             "is set"},
            Choice<Addressing>{{{"auto", Addressing::kAuto},
                                {"path", Addressing::kPath},
                                {"virtual", Addressing::kVirtual}}}),
      field(&S::ca_file,
            {"ca_file", "path", "Certificates that origins are trusted by",
             "AWS_CA_BUNDLE (S3 only), SSL_CERT_FILE, else those of the system"},
            Text{}),
      field(&S::verify_tls,
            {"verify_tls", "", "Check the certificates of origins; false is warned of"}, Switch{}),
      field(&S::socket, {"socket", "path", "Where the daemon listens", "quiverd.sock in cache_dir"},
            Text{}),
      field(
          &S::idle_timeout,
          {"idle_timeout", "s", "A daemon that started itself stops after this time without a job"},
          Seconds{seconds(1), seconds(30 * 86400)}),
      field(&S::metrics,
            {"metrics", "address or path",
             "Where the daemon serves its figures for Prometheus, at /metrics: on the loopback "
             "interface, which every user of the machine can read, or on a socket of its own user",
             "nowhere"},
            LocalAddress{}),
      field(&S::log_level, {"log_level", "", "The least severe events that are logged"},
            Choice<LogLevel>{{{"debug", LogLevel::kDebug},
                              {"info", LogLevel::kInfo},
                              {"warning", LogLevel::kWarning},
                              {"error", LogLevel::kError}}}),
  };
}

// QUIVER=off is for the moment when something is wrong: it needs no change of code or file, so it
// stands above the order of precedence.
Status apply_switch(const Getenv& environment, Settings& settings) {
  auto text = environment(kSwitch);
  if (!text || text->empty()) return {};
  auto on = Switch{}.read(*text);
  if (!on)
    return error(Code::kInvalid, "environment variable {} cannot be '{}'; write off or on", kSwitch,
                 *text);
  if (*on) return {};
  settings.enabled = false;
  const auto& fields = settings_fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].info.name == "enabled") {
      settings.sources[i] = {Source::kEnvironment, fmt::format("environment variable {}", kSwitch)};
    }
  }
  return {};
}

}  // namespace

const std::vector<Field<Settings>>& settings_fields() {
  static const std::vector<Field<Settings>> fields = make_fields();
  return fields;
}

SettingsPath settings_path(const Getenv& environment) {
  auto value = [&](const char* name) { return environment(name).value_or(""); };
  if (std::string named = value(kConfig); !named.empty()) return {named, true};
  if (std::string xdg = value("XDG_CONFIG_HOME"); xdg.starts_with('/')) {
    return {xdg + "/quiver/quiver.toml", false};
  }
  if (std::string home = value("HOME"); !home.empty()) {
    return {home + "/.config/quiver/quiver.toml", false};
  }
  return {};
}

Result<Settings> load_settings(const std::map<std::string, std::string>& arguments,
                               const Getenv& environment, const std::vector<std::string>& names,
                               const std::optional<SettingsFile>& file) {
  SettingsInputs inputs{.arguments = arguments,
                        .environment = environment,
                        .environment_names = names,
                        .other_names = kOthers,
                        .file = file};
  std::erase_if(inputs.environment_names, [](const auto& n) { return n.starts_with(kTests); });
  Settings settings;
  settings.sources = TRY(load(settings_fields(), inputs, settings));
  if (Status s = apply_switch(environment, settings); !s) return std::move(s).error();
  return settings;
}

std::string explain(const Settings& settings) {
  std::string out;
  const auto& fields = settings_fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    Provenance from = i < settings.sources.size() ? settings.sources[i] : Provenance{};
    out += explain_field(fields[i].info, fields[i].get(settings), from);
  }
  return out;
}

std::string settings_reference() {
  std::string out =
      "# Settings\n\n"
      "Each setting is taken from the first of: an argument of the same name, the environment\n"
      "(`QUIVER_` and the name in capitals), the file `quiver.toml` (named by `QUIVER_CONFIG`, "
      "else in\n"
      "`$XDG_CONFIG_HOME/quiver` or `~/.config/quiver`; lines of the form `name = value`), its "
      "default.\n"
      "`QUIVER=off` in the environment turns Quiver off whatever else is set.\n\n";
  out += reference_heading();
  for (const auto& f : settings_fields()) out += reference_row(f.info);
  return out;
}

}  // namespace quiver
