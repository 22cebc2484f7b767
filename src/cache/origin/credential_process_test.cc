#include "cache/origin/credential_process.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>

#include "cache/origin/origin.h"
#include "io/test_directory.h"

namespace quiver::cache {
namespace {

constexpr std::string_view kKeys =
    R"({"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "topsecret", "SessionToken": "T")";

WallTime at(std::int64_t seconds) {
  return WallTime(std::chrono::seconds(seconds));
}

TEST(CredentialProcess, SplitsAsAShellDoesAndExpandsNothing) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split_command("  get  --as me\t").value(), (Words{"get", "--as", "me"}));
  EXPECT_EQ(split_command(R"('/a b/get' "c d" e\ f '' "")").value(),
            (Words{"/a b/get", "c d", "e f", "", ""}));
  EXPECT_EQ(split_command(R"(g'e't "a\"b\\c\d" 'x\y' $HOME `id` a;b *)").value(),
            (Words{"get", R"(a"b\c\d)", R"(x\y)", "$HOME", "`id`", "a;b", "*"}));
  for (const char* bad : {"'a", "\"a", "a\\"}) {
    EXPECT_EQ(split_command(bad).error().code, Code::kInvalid) << bad;
  }
  EXPECT_TRUE(rc::check([](const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) {
      line += " '";
      for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
      line += "'";
    }
    RC_ASSERT(split_command(line).value() == words);
  }));
}

TEST(CredentialProcess, UnderstandsVersionOne) {
  const auto plain = parse_process_credentials(std::string(kKeys) + "}");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->keys, (Credentials{"A", "topsecret", "T"}));
  EXPECT_FALSE(plain->expires);
  const auto expires = [](const std::string& until) {
    const auto got =
        parse_process_credentials(std::string(kKeys) + R"(, "Expiration": ")" + until + "\"}");
    return got ? got->expires : std::nullopt;
  };
  EXPECT_EQ(expires("1994-11-06T08:49:37Z"), at(784111777));
  EXPECT_EQ(expires("1994-11-06T08:49:37+00:00"), at(784111777));
  EXPECT_EQ(expires("1994-11-06T10:19:37+01:30"), at(784111777));
  EXPECT_EQ(expires("1994-11-06T07:49:37-01:00"), at(784111777));
  EXPECT_EQ(expires("soon"), std::nullopt);
}

TEST(CredentialProcess, OtherOutputIsRefusedAndNotRepeated) {
  for (const std::string& bad :
       {std::string(), std::string("topsecret"), std::string("[1]"), std::string(kKeys),
        std::string(R"({"Version": 2, "AccessKeyId": "A", "SecretAccessKey": "topsecret"})"),
        std::string(R"({"Version": 1, "AccessKeyId": "A", "SecretAccessKey": 7})"),
        std::string(kKeys) + R"(, "Expiration": "topsecret"})"}) {
    const auto got = parse_process_credentials(bad);
    ASSERT_FALSE(got) << bad;
    EXPECT_EQ(got.error().code, Code::kInvalid);
    EXPECT_EQ(got.error().message.find("topsecret"), std::string::npos) << got.error().message;
  }
}

// Runs the script as the process of a profile.
struct Profile {
  Result<OriginSettings> with(const std::string& script) {
    std::ofstream(home / "get") << "#!/bin/sh\n" << script << "\n";
    std::ofstream(home / "config")
        << "[default]\ncredential_process = sh '" << (home / "get") << "' \"two words\"\n";
    return with_environment(
        {.url = "s3://b"}, files,
        [&](const std::string& name) -> std::optional<std::string> {
          if (name == "AWS_CONFIG_FILE") return home / "config";
          return std::nullopt;
        },
        at(1000));
  }
  io::TestDirectory home;
  io::RealFiles files;
};

TEST(CredentialProcess, OfTheProfileIsRun) {
  Profile profile;
  const auto got = profile.with(
      "echo '{\"Version\": 1, \"AccessKeyId\": \"'$1'\", "
      "\"SecretAccessKey\": \"s\", "
      "\"Expiration\": \"1994-11-06T08:49:37Z\"}'");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->access_key, "two words");
  EXPECT_EQ(got->secret_key, "s");
  EXPECT_EQ(got->expires, at(784111777));
}

TEST(CredentialProcess, ThatFailsTellsWhatItSaid) {
  Profile profile;
  const auto failed = profile.with("echo topsecret; echo 'please log in' >&2; exit 7");
  ASSERT_FALSE(failed);
  for (const char* part : {"\"default\"", "status 7", "please log in"}) {
    EXPECT_NE(failed.error().message.find(part), std::string::npos) << failed.error().message;
  }
  EXPECT_EQ(failed.error().message.find("topsecret"), std::string::npos);
  EXPECT_EQ(profile.with("echo '{}'").error().code, Code::kInvalid);
  EXPECT_EQ(
      profile.with("echo '" + std::string(kKeys) + R"(, "Expiration": "1970-01-01T00:00:09Z"}')")
          .error()
          .code,
      Code::kExpired);
}

}  // namespace
}  // namespace quiver::cache
