// What the environment and the files in ~/.aws say about an origin.
#include "cache/origin/credential_process.h"
#include "cache/origin/ini.h"
#include "cache/origin/origin.h"
#include "cache/origin/text.h"
#include "io/process.h"

namespace quiver::cache {
namespace {

constexpr Bytes kMaxFile = 1_MiB;

using Env = std::function<std::optional<std::string>(const std::string&)>;

struct Profile {
  std::string name;
  std::map<std::string, std::string> values;

  std::string value(const std::string& key) const {
    const auto at = values.find(key);
    return at == values.end() ? std::string{} : at->second;
  }
};

// The first of the variables that is set; an empty one is not.
std::string first_of(const Env& env, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = env(name); value && !value->empty()) return *value;
  }
  return {};
}

void fill(std::string& setting, std::string value) {
  if (setting.empty()) setting = std::move(value);
}

// An absent file is an empty one.
Result<IniFile> read_ini(io::Files& files, const std::string& path) {
  auto text = io::read_file(files, path, kMaxFile);
  if (text) return parse_ini(*text, path);
  if (text.error().code == Code::kNotFound) return IniFile{};
  return std::move(text).error();
}

Result<Profile> read_profile(io::Files& files, const Env& env) {
  const std::string home = first_of(env, {"HOME"});
  std::string credentials = first_of(env, {"AWS_SHARED_CREDENTIALS_FILE"});
  std::string config = first_of(env, {"AWS_CONFIG_FILE"});
  if (!home.empty()) {
    fill(credentials, home + "/.aws/credentials");
    fill(config, home + "/.aws/config");
  }
  const std::string named = first_of(env, {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  Profile profile{named.empty() ? "default" : named, {}};
  bool found = false;
  auto merge = [&](const IniFile& file, const std::string& section) {
    const auto at = file.find(section);
    if (at == file.end()) return;
    found = true;
    profile.values.insert(at->second.begin(), at->second.end());  // what is there stays
  };
  if (!credentials.empty()) {
    const IniFile file = TRY(read_ini(files, credentials));
    merge(file, profile.name);
  }
  if (!config.empty()) {
    const IniFile file = TRY(read_ini(files, config));
    merge(file, "profile " + profile.name);
    if (profile.name == "default") merge(file, "default");
  }
  if (!found && !named.empty()) {
    return error(Code::kInvalid, "AWS_PROFILE names \"{}\", which is in neither {} nor {}", named,
                 credentials, config);
  }
  return profile;
}

// Keys and token travel together: those of one source are never mixed with those of another.
Status fill_credentials(OriginSettings& settings, const Env& env, const Profile& profile,
                        WallTime now) {
  if (!settings.access_key.empty() || !settings.secret_key.empty()) return {};
  const std::string key = first_of(env, {"AWS_ACCESS_KEY_ID"});
  const std::string secret = first_of(env, {"AWS_SECRET_ACCESS_KEY"});
  if (key.empty() != secret.empty()) {
    return error(Code::kInvalid,
                 "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set; "
                 "set both, or neither");
  }
  if (!key.empty()) {
    settings.access_key = key;
    settings.secret_key = secret;
    settings.session_token = first_of(env, {"AWS_SESSION_TOKEN"});
    return {};
  }
  settings.access_key = profile.value("aws_access_key_id");
  settings.secret_key = profile.value("aws_secret_access_key");
  settings.session_token = profile.value("aws_session_token");
  if (settings.access_key.empty() != settings.secret_key.empty()) {
    return error(Code::kInvalid,
                 "the profile \"{}\" has only one of aws_access_key_id and "
                 "aws_secret_access_key",
                 profile.name);
  }
  if (!settings.access_key.empty()) return {};
  if (const std::string command = profile.value("credential_process"); !command.empty()) {
    ExpiringCredentials got = TRY(run_credential_process(profile.name, command, now));
    settings.set_credentials(std::move(got.keys));
    settings.expires = got.expires;
    return {};
  }
  for (const char* way : {"role_arn", "sso_session", "sso_start_url", "web_identity_token_file"}) {
    if (profile.value(way).empty()) continue;
    return error(Code::kInvalid,
                 "the profile \"{}\" gets its credentials by {}, which only Python programs can: "
                 "name a profile here whose credential_process is `aws configure "
                 "export-credentials --profile {}`, or export AWS_ACCESS_KEY_ID, "
                 "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN",
                 profile.name, way, profile.name);
  }
  return {};
}

}  // namespace

std::string trust_warning(const OriginSettings& settings) {
  const bool tls = settings.url.starts_with("https://") ||
                   (settings.url.starts_with("s3://") && !settings.endpoint.starts_with("http://"));
  if (!tls || settings.verify_tls) return {};
  return fmt::format(
      "TLS CERTIFICATES OF {} ARE NOT CHECKED (verify_tls is false): whoever is between can pose "
      "as "
      "it and give other data; name the CA in ca_file, AWS_CA_BUNDLE or SSL_CERT_FILE instead",
      settings.url);
}

Result<OriginSettings> with_environment(
    OriginSettings settings, io::Files& files,
    const std::function<std::optional<std::string>(const std::string&)>& env, WallTime now) {
  settings.url = with_plain_scheme(std::move(settings.url));
  if (settings.url.starts_with("s3://")) {
    const Profile profile = TRY(read_profile(files, env));
    if (auto filled = fill_credentials(settings, env, profile, now); !filled) {
      return std::move(filled).error();
    }
    fill(settings.region, first_of(env, {"AWS_REGION", "AWS_DEFAULT_REGION"}));
    fill(settings.region, profile.value("region"));
    fill(settings.endpoint, first_of(env, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}));
    fill(settings.endpoint, profile.value("s3.endpoint_url"));
    fill(settings.endpoint, profile.value("endpoint_url"));
    const std::string style = profile.value("s3.addressing_style");
    if (settings.addressing == "auto" && !style.empty()) settings.addressing = style;
    fill(settings.ca_file, first_of(env, {"AWS_CA_BUNDLE"}));
    fill(settings.ca_file, profile.value("ca_bundle"));
  }
  fill(settings.ca_file, first_of(env, {"SSL_CERT_FILE"}));
  if (!settings.ca_file.empty()) settings.ca_file = TRY(io::absolute_path(settings.ca_file));
  // No HTTP_PROXY: a web server that runs a job would set it from the header "Proxy:".
  fill(settings.proxies.http, first_of(env, {"http_proxy", "all_proxy", "ALL_PROXY"}));
  fill(settings.proxies.https,
       first_of(env, {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}));
  fill(settings.proxies.except, first_of(env, {"no_proxy", "NO_PROXY"}));
  return settings;
}

}  // namespace quiver::cache
