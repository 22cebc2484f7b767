#include "cache/origin/credential_process.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cache/origin/text.h"
#include "io/run_program.h"

namespace quiver::cache {
namespace {

constexpr std::chrono::seconds kLongestRun{60};
constexpr Bytes kMostOutput = 64_KiB;
constexpr std::size_t kMostSaid = 300;

// The last of what it wrote to stderr, as one printable line.
std::string last_words(std::string said) {
  while (!said.empty() && static_cast<unsigned char>(said.back()) <= 32) said.pop_back();
  if (said.size() > kMostSaid) said.erase(0, said.size() - kMostSaid);
  std::replace_if(
      said.begin(), said.end(), [](unsigned char c) { return c < 32 || c > 126; }, ' ');
  return said.empty() ? "nothing" : said;
}

// Also with an offset: "2026-12-01T05:00:00+02:00".
std::optional<WallTime> time_of(std::string text) {
  std::chrono::minutes offset{};
  const std::size_t sign = text.size() < 6 ? 0 : text.size() - 6;
  if (sign != 0 && (text[sign] == '+' || text[sign] == '-') && text[sign + 3] == ':') {
    const auto hours = parse_number(text.substr(sign + 1, 2));
    const auto minutes = parse_number(text.substr(sign + 4));
    if (!hours || !minutes) return std::nullopt;
    offset = std::chrono::minutes(*hours * 60 + *minutes) * (text[sign] == '+' ? 1 : -1);
    text.resize(sign);
    text += 'Z';
  }
  const std::int64_t ns = parse_iso_date(text);
  if (ns == 0) return std::nullopt;
  return WallTime(Duration(ns)) - offset;
}

}  // namespace

Result<std::vector<std::string>> split_command(std::string_view command) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  const auto put = [&](char c) {
    if (!in_word) words.emplace_back();
    in_word = true;
    words.back() += c;
  };
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    const bool escapes = c == '\\' && quote != '\'';
    if (escapes && i + 1 == command.size()) {
      return error(Code::kInvalid, "the command ends in a backslash");
    }
    if (escapes) {
      const char next = command[++i];
      if (quote == '"' && next != '"' && next != '\\') put(c);  // as in a shell
      put(next);
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      if (!in_word) words.emplace_back();
      in_word = true;
    } else if (quote == 0 && std::string_view(" \t\r\n").find(c) != std::string_view::npos) {
      in_word = false;
    } else {
      put(c);
    }
  }
  if (quote != 0) return error(Code::kInvalid, "the command has a quote without its end");
  return words;
}

Result<ExpiringCredentials> parse_process_credentials(std::string_view json) {
  const auto said = nlohmann::json::parse(json, nullptr, false);
  const auto text = [&](const char* name) {
    const auto at = said.find(name);
    return at != said.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  if (!said.is_object()) return error(Code::kInvalid, "its output is no JSON object");
  if (said.value("Version", nlohmann::json()) != 1) {
    return error(Code::kInvalid, "its output is not of Version 1");
  }
  ExpiringCredentials got{{text("AccessKeyId"), text("SecretAccessKey"), text("SessionToken")}, {}};
  if (got.keys.access_key.empty() || got.keys.secret_key.empty()) {
    return error(Code::kInvalid, "its output has no AccessKeyId and SecretAccessKey");
  }
  if (const std::string until = text("Expiration"); !until.empty()) {
    got.expires = time_of(until);
    if (!got.expires) return error(Code::kInvalid, "its output has an Expiration that is no time");
  }
  return got;
}

Result<ExpiringCredentials> run_credential_process(const std::string& profile,
                                                   std::string_view command, WallTime now) {
  const auto context = [&](Error e) {
    return std::move(e).context(
        fmt::format("the credential_process of the profile \"{}\"", profile));
  };
  const auto argv = split_command(command);
  if (!argv) return context(argv.error());
  auto ran = io::run_program(*argv, kLongestRun, kMostOutput);
  if (!ran) return context(std::move(ran).error());
  if (ran->status != 0) {
    return context(error(Code::kInvalid, "it ended with status {} and said: {}", ran->status,
                         last_words(std::move(ran->err))));
  }
  auto got = parse_process_credentials(ran->out);
  if (!got) return context(std::move(got).error());
  if (got->expires && *got->expires <= now) {
    return context(error(Code::kExpired, "what it gave has expired already; log in again"));
  }
  return got;
}

}  // namespace quiver::cache
