#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "cache/origin/ini.h"
#include "cache/origin/origin.h"

namespace quiver::cache {
namespace {

namespace fs = std::filesystem;

struct EnvironmentTest : ::testing::Test {
  EnvironmentTest() {
    std::string name = (fs::temp_directory_path() / "quiver-env-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    home = name;
    fs::create_directory(home / ".aws");
    variables["HOME"] = home.string();
  }
  ~EnvironmentTest() override { fs::remove_all(home); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(home / ".aws" / name) << text;
  }
  Result<OriginSettings> filled(OriginSettings settings = {.url = "s3://b"}) {
    return with_environment(
        settings, files,
        [&](const std::string& name) {
          const auto at = variables.find(name);
          return at == variables.end() ? std::nullopt : std::optional(at->second);
        },
        RealClock().wall());
  }

  fs::path home;
  io::RealFiles files;
  std::map<std::string, std::string> variables;
};

TEST_F(EnvironmentTest, NothingSetIsAnonymous) {
  auto settings = filled();
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->access_key, "");
  EXPECT_EQ(settings->endpoint, "");
}

TEST_F(EnvironmentTest, ExplicitBeforeVariablesBeforeProfile) {
  write("credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key = fs\n");
  write("config",
        "[default]\nregion = eu-file-1\nendpoint_url = http://file\n"
        "s3 =\n  addressing_style = path\n");
  auto from_file = filled();
  ASSERT_TRUE(from_file) << from_file.error().message;
  EXPECT_EQ(from_file->access_key, "FILE");
  EXPECT_EQ(from_file->region, "eu-file-1");
  EXPECT_EQ(from_file->endpoint, "http://file");
  EXPECT_EQ(from_file->addressing, "path");

  variables.insert({{"AWS_ACCESS_KEY_ID", "ENV"},
                    {"AWS_SECRET_ACCESS_KEY", "es"},
                    {"AWS_SESSION_TOKEN", "et"},
                    {"AWS_DEFAULT_REGION", "eu-env-2"},
                    {"AWS_ENDPOINT_URL", "http://env"},
                    {"AWS_CA_BUNDLE", "/ca"},
                    {"SSL_CERT_FILE", "/ssl"}});
  auto from_env = filled();
  EXPECT_EQ(from_env->access_key + from_env->secret_key + from_env->session_token, "ENVeset");
  EXPECT_EQ(from_env->region, "eu-env-2");
  EXPECT_EQ(from_env->endpoint, "http://env");
  EXPECT_EQ(from_env->ca_file, "/ca");
  variables["AWS_ENDPOINT_URL_S3"] = "http://s3";
  variables["AWS_REGION"] = "eu-env-1";
  EXPECT_EQ(filled()->endpoint, "http://s3");
  EXPECT_EQ(filled()->region, "eu-env-1");

  auto explicit_ = filled({.url = "s3://b",
                           .endpoint = "http://mine",
                           .region = "r",
                           .access_key = "ME",
                           .secret_key = "mine"});
  EXPECT_EQ(explicit_->access_key, "ME");
  EXPECT_EQ(explicit_->session_token, "");  // never the token of other keys
  EXPECT_EQ(explicit_->endpoint, "http://mine");
}

TEST_F(EnvironmentTest, ProfilesAreNamedByAwsProfile) {
  write("credentials",
        "[default]\naws_access_key_id=D\naws_secret_access_key=d\n"
        "[work]\naws_access_key_id=W\naws_secret_access_key=w=/+\n"
        "aws_session_token=t\n");
  write("config", "# comment\n[profile work]\nregion = us-west-2\n");
  variables["AWS_PROFILE"] = "work";
  EXPECT_EQ(filled()->access_key, "W");
  EXPECT_EQ(filled()->secret_key, "w=/+");
  EXPECT_EQ(filled()->session_token, "t");
  EXPECT_EQ(filled()->region, "us-west-2");
  variables["AWS_PROFILE"] = "wrok";
  auto wrong = filled();
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("\"wrok\""), std::string::npos);
  variables.erase("AWS_PROFILE");
  variables["AWS_SHARED_CREDENTIALS_FILE"] = (home / "other").string();
  std::ofstream(home / "other") << "[default]\naws_access_key_id=O\naws_secret_access_key=o\n";
  EXPECT_EQ(filled()->access_key, "O");
}

TEST_F(EnvironmentTest, WhatCannotBeUsedIsSaid) {
  variables["AWS_ACCESS_KEY_ID"] = "ENV";
  EXPECT_EQ(filled().error().code, Code::kInvalid);
  variables.erase("AWS_ACCESS_KEY_ID");
  write("config", "[default]\nrole_arn = arn:aws:iam::1:role/r\n");
  EXPECT_NE(filled().error().message.find("role_arn"), std::string::npos);
  write("config", "[default]\nthis line holds topsecret\n");
  auto broken = filled();
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("line 2"), std::string::npos);
  EXPECT_EQ(broken.error().message.find("topsecret"), std::string::npos);
}

TEST_F(EnvironmentTest, ProxiesAreThoseThatCurlTakes) {
  for (const char* url : {"s3://b", "http://h/x"}) {
    variables.insert({{"HTTP_PROXY", "not-taken"}, {"HTTPS_PROXY", "http://S"}, {"NO_PROXY", "X"}});
    auto upper = filled({.url = url});
    EXPECT_EQ(upper->proxies.http, "");  // a CGI program's variable may come from its client
    EXPECT_EQ(upper->proxies.https, "http://S");
    EXPECT_EQ(upper->proxies.except, "X");
    variables["ALL_PROXY"] = "http://A";
    EXPECT_EQ(filled({.url = url})->proxies.http, "http://A");
    variables.insert({{"http_proxy", "http://h"}, {"https_proxy", "http://s"}, {"no_proxy", "x"}});
    auto lower = filled({.url = url});
    EXPECT_EQ(lower->proxies.http, "http://h");
    EXPECT_EQ(lower->proxies.https, "http://s");
    EXPECT_EQ(lower->proxies.except, "x");
    variables.clear();
  }
}

TEST_F(EnvironmentTest, ARelativeCaFileIsMadeAbsolute) {
  EXPECT_EQ(filled({.url = "https://h", .ca_file = "./c.pem"})->ca_file,
            (fs::current_path() / "c.pem").string());
  EXPECT_EQ(filled({.url = "https://h", .ca_file = "/c.pem"})->ca_file, "/c.pem");
}

TEST_F(EnvironmentTest, TheSchemeIsReadInAnyCase) {
  variables["AWS_REGION"] = "eu";
  EXPECT_EQ(filled({.url = "S3://Bucket/P"})->url, "s3://Bucket/P");
  EXPECT_EQ(filled({.url = "S3://Bucket/P"})->region, "eu");
}

TEST_F(EnvironmentTest, OnlyUncheckedTlsIsWarnedOf) {
  for (const auto& [url, endpoint, warned] :
       std::vector<std::tuple<std::string, std::string, bool>>{{"https://h/x", "", true},
                                                               {"s3://b", "", true},
                                                               {"s3://b", "https://h", true},
                                                               {"s3://b", "http://h", false},
                                                               {"http://h/x", "", false},
                                                               {"/data", "", false}}) {
    OriginSettings settings{.url = url, .endpoint = endpoint, .verify_tls = false};
    EXPECT_EQ(!trust_warning(settings).empty(), warned) << url;
    settings.verify_tls = true;
    EXPECT_EQ(trust_warning(settings), "");
  }
}

TEST_F(EnvironmentTest, OtherOriginsTakeOnlyTheCaFile) {
  variables.insert(
      {{"AWS_ACCESS_KEY_ID", "ENV"}, {"AWS_SECRET_ACCESS_KEY", "es"}, {"SSL_CERT_FILE", "/ssl"}});
  auto settings = filled({.url = "https://host/x"});
  EXPECT_EQ(settings->access_key, "");
  EXPECT_EQ(settings->ca_file, "/ssl");
}

}  // namespace
}  // namespace quiver::cache
