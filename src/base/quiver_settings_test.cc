#include "base/quiver_settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

namespace quiver {
namespace {

using Pairs = std::map<std::string, std::string>;

Getenv getter(const Pairs& environment) {
  return [environment](const std::string& name) -> std::optional<std::string> {
    auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  };
}

Result<Settings> load_from(const Pairs& arguments, const Pairs& environment,
                           const std::optional<SettingsFile>& file = {}) {
  std::vector<std::string> names;
  for (const auto& [name, value] : environment) names.push_back(name);
  return load_settings(arguments, getter(environment), names, file);
}

TEST(QuiverSettings, DefaultsAreWhatTheStructSays) {
  Settings s = load_from({}, {}).value();
  EXPECT_TRUE(s.enabled);
  EXPECT_EQ(s.fetch_concurrency, 16);
  EXPECT_EQ(s.memory_limit, 1_GiB);
  EXPECT_EQ(s.verify, Verify::kSampled);
  EXPECT_EQ(s.disk_limit, SizeOrShare{});
}

TEST(QuiverSettings, EveryFieldReadsWhatItWritesAndIsDocumented) {
  std::set<std::string_view> names;
  for (const auto& f : settings_fields()) {
    Settings s;
    EXPECT_TRUE(names.insert(f.info.name).second) << f.info.name;
    EXPECT_TRUE(f.set(s, f.info.default_text)) << f.info.name;
    EXPECT_EQ(f.get(s), f.info.default_text) << f.info.name;
    EXPECT_FALSE(f.info.doc.empty()) << f.info.name;
    EXPECT_EQ(f.info.doc.find('|'), std::string_view::npos) << f.info.name;
    EXPECT_EQ(f.info.default_text.empty(), !f.info.when_empty.empty()) << f.info.name;
    EXPECT_NE(settings_reference().find(fmt::format("| `{}` |", f.info.name)), std::string::npos);
  }
}

TEST(QuiverSettings, EachNameReachesItsOwnField) {
  Settings s = load_from({{"cache_dir", "/c"},
                          {"socket", "/s"},
                          {"manifest_dir", "/m"},
                          {"endpoint", "http://e"},
                          {"region", "eu"},
                          {"ca_file", "/ca"},
                          {"verify", "always"},
                          {"addressing", "path"},
                          {"verify_tls", "false"},
                          {"log_level", "debug"},
                          {"idle_timeout", "1min"},
                          {"rate_limit", "4MB/s"},
                          {"window", "5%"},
                          {"disk_limit", "20GB"},
                          {"disk_floor", "10%"}},
                         {})
                   .value();
  EXPECT_EQ(s.cache_dir + s.socket + s.manifest_dir + s.endpoint + s.region + s.ca_file,
            "/c/s/mhttp://eeu/ca");
  EXPECT_EQ(s.verify, Verify::kAlways);
  EXPECT_EQ(s.addressing, Addressing::kPath);
  EXPECT_FALSE(s.verify_tls);
  EXPECT_EQ(s.log_level, LogLevel::kDebug);
  EXPECT_EQ(s.idle_timeout, std::chrono::seconds(60));
  EXPECT_EQ(s.rate_limit, Bytes(4'000'000));
  EXPECT_EQ(s.window.share, 0.05);
  EXPECT_EQ(s.disk_limit.size, Bytes(20'000'000'000));
  EXPECT_EQ(s.disk_floor, 0.1);
}

TEST(QuiverSettings, TheSwitchInTheEnvironmentWins) {
  EXPECT_FALSE(load_from({}, {{"QUIVER", "off"}}).value().enabled);
  EXPECT_FALSE(load_from({{"enabled", "true"}}, {{"QUIVER", "off"}}).value().enabled);
  EXPECT_TRUE(load_from({}, {{"QUIVER", "on"}}).value().enabled);
  EXPECT_TRUE(load_from({}, {{"QUIVER", ""}}).value().enabled);
  EXPECT_FALSE(load_from({}, {{"QUIVER_ENABLED", "false"}, {"QUIVER", "on"}}).value().enabled);
  auto bad = load_from({}, {{"QUIVER", "perhaps"}});
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("'perhaps'"), std::string::npos);
  EXPECT_NE(explain(load_from({}, {{"QUIVER", "off"}}).value())
                .find("enabled = false\n    from: environment variable QUIVER\n"),
            std::string::npos);
}

TEST(QuiverSettings, LeavesTheVariablesOfToolsAndTestsAlone) {
  EXPECT_TRUE(
      load_from({}, {{"QUIVER_VENV", "/v"}, {"QUIVER_CONFIG", "/q"}, {"QUIVER_TEST_S3", "u"}}));
  EXPECT_FALSE(load_from({}, {{"QUIVER_VERFIY", "fill"}}));
}

TEST(QuiverSettings, FindsItsFile) {
  EXPECT_EQ(settings_path(getter({{"QUIVER_CONFIG", "/q"}, {"XDG_CONFIG_HOME", "/x"}})).path, "/q");
  EXPECT_TRUE(settings_path(getter({{"QUIVER_CONFIG", "/q"}})).must_exist);
  EXPECT_EQ(settings_path(getter({{"XDG_CONFIG_HOME", "/x"}, {"HOME", "/h"}})).path,
            "/x/quiver/quiver.toml");
  EXPECT_EQ(settings_path(getter({{"XDG_CONFIG_HOME", "relative"}, {"HOME", "/h"}})).path,
            "/h/.config/quiver/quiver.toml");
  EXPECT_FALSE(settings_path(getter({{"HOME", "/h"}})).must_exist);
  EXPECT_EQ(settings_path(getter({})).path, "");
}

TEST(QuiverSettings, ExplainsEverySetting) {
  std::string text = explain(
      load_from({{"disk_limit", "75%"}}, {}, SettingsFile{"/q.toml", "verify = 'fill'"}).value());
  EXPECT_NE(text.find("disk_limit = 75%\n    from: argument\n"), std::string::npos);
  EXPECT_NE(text.find("verify = fill\n    from: /q.toml\n"), std::string::npos);
  EXPECT_NE(text.find("memory_limit = 1GiB\n    from: default\n"), std::string::npos);
  EXPECT_NE(explain(Settings{}).find("window = (computed"), std::string::npos);
}

TEST(QuiverSettings, TheReferencePageIsTheTable) {
  std::ifstream file(QUIVER_SOURCE_DIR "/docs/settings.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const char* renewed = QUIVER_BINARY_DIR "/settings.md";
  if (page != settings_reference()) std::ofstream(renewed) << settings_reference();
  EXPECT_EQ(page, settings_reference()) << "renew it: cp " << renewed << " docs/settings.md";
}

}  // namespace
}  // namespace quiver
