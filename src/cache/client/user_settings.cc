#include "cache/client/user_settings.h"

#include <filesystem>

#include "io/process.h"

namespace quiver::cache {

namespace {

Result<std::optional<SettingsFile>> settings_file(io::Files& files) {
  const SettingsPath where = settings_path(io::environment);
  if (where.path.empty()) return std::optional<SettingsFile>{};
  auto text = io::read_file(files, where.path, 1_MiB);
  if (!text && text.error().code == Code::kNotFound && !where.must_exist) {
    return std::optional<SettingsFile>{};
  }
  if (text) return std::optional(SettingsFile{where.path, *std::move(text)});
  return error(text.error().code, "the settings file cannot be read: {}; {}", text.error().message,
               where.must_exist ? "let QUIVER_CONFIG name another, or unset it"
                                : "make it readable, or move it away");
}

}  // namespace

Result<Settings> user_settings(const std::map<std::string, std::string>& arguments,
                               io::Files& files) {
  Settings settings = TRY(load_settings(arguments, io::environment, io::environment_names(),
                                        TRY(settings_file(files))));
  if (Status ok = make_paths_absolute(settings); !ok) return std::move(ok).error();
  return settings;
}

Status make_paths_absolute(Settings& settings) {
  for (std::string* path :
       {&settings.cache_dir, &settings.socket, &settings.manifest_dir, &settings.ca_file}) {
    if (path->empty() || path->starts_with('/')) continue;
    std::error_code failed;
    const auto here = std::filesystem::current_path(failed);
    if (failed) {
      return error(Code::kInvalid,
                   "the path '{}' is meant from the working directory, which cannot be found ({}): "
                   "write it absolute",
                   *path, failed.message());
    }
    std::string whole = (here / *path).lexically_normal();
    while (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
    *path = std::move(whole);
  }
  return {};
}

Result<OriginSettings> user_origin(const std::string& url, const Settings& settings,
                                   const Credentials& credentials, io::Files& files) {
  OriginSettings origin;
  origin.url = url;
  origin.endpoint = settings.endpoint;
  origin.region = settings.region;
  constexpr const char* kAddressing[] = {"auto", "path", "virtual"};
  origin.addressing = kAddressing[static_cast<int>(settings.addressing)];
  origin.set_credentials(credentials);
  origin.ca_file = settings.ca_file;
  origin.verify_tls = settings.verify_tls;
  origin.rate_limit = settings.rate_limit;
  return with_environment(std::move(origin), files, io::environment, RealClock().wall());
}

}  // namespace quiver::cache
