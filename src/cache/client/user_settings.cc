#include "cache/client/user_settings.h"

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
  return std::optional(SettingsFile { where.path, TRY(std::move(text)) });
}

}  // namespace

Result<Settings> user_settings(const std::map<std::string, std::string>& arguments,
                               io::Files& files) {
  return load_settings(arguments, io::environment, io::environment_names(),
                       TRY(settings_file(files)));
}

Result<OriginSettings> user_origin(const std::string& url, const Settings& settings,
                                   const Credentials& credentials, io::Files& files) {
  OriginSettings origin;
  origin.url = url;
  origin.endpoint = settings.endpoint;
  origin.region = settings.region;
  constexpr const char* kAddressing[] = {"auto", "path", "virtual"};
  origin.addressing = kAddressing[static_cast<int>(settings.addressing)];
  origin.access_key = credentials.access_key;
  origin.secret_key = credentials.secret_key;
  origin.session_token = credentials.session_token;
  origin.ca_file = settings.ca_file;
  origin.verify_tls = settings.verify_tls;
  origin.rate_limit = settings.rate_limit;
  return with_environment(std::move(origin), files, io::environment);
}

}  // namespace quiver::cache
