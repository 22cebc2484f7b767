#include "base/share_rules.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace quiver {

namespace {

constexpr std::size_t kShortest = 4;
constexpr double kMostWeight = 1000;

Error not_accepted() {
  return Error{Code::kInvalid, ""};  // the caller says what is
}

// The next word, and `text` without it; empty at the end.
std::string_view take_word(std::string_view& text) {
  const auto begin = text.find_first_not_of(' ');
  text.remove_prefix(std::min(begin, text.size()));
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

Result<double> read_weight(std::string_view text) {
  double weight = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), weight);
  const bool whole = failure == std::errc() && end == text.data() + text.size();
  if (!whole || !(weight > 0 && weight <= kMostWeight)) return not_accepted();
  return weight;
}

Result<ShareRule> read_rule(std::string_view text) {
  ShareRule rule;
  rule.dataset = take_word(text);
  const bool hex = rule.dataset.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hex || rule.dataset.size() < kShortest) return not_accepted();
  constexpr std::string_view kWeight = "weight=", kLimit = "limit=";
  bool any = false;
  for (auto word = take_word(text); !word.empty(); word = take_word(text)) {
    if (word.starts_with(kWeight)) {
      rule.weight = TRY(read_weight(word.substr(kWeight.size())));
    } else if (word.starts_with(kLimit)) {
      rule.limit = TRY(parse_bytes(word.substr(kLimit.size())));
      if (rule.limit.value == 0) return not_accepted();
    } else {
      return not_accepted();
    }
    any = true;
  }
  if (!any) return not_accepted();
  return rule;
}

}  // namespace

Result<std::vector<ShareRule>> ShareRuleList::read(std::string_view text) const {
  std::vector<ShareRule> rules;
  if (text.find_first_not_of(' ') == std::string_view::npos) return rules;
  for (;;) {
    const auto comma = text.find(',');
    rules.push_back(TRY(read_rule(text.substr(0, comma))));
    if (comma == std::string_view::npos) return rules;
    text.remove_prefix(comma + 1);
  }
}

std::string ShareRuleList::write(const std::vector<ShareRule>& value) const {
  std::string out;
  for (const ShareRule& rule : value) {
    if (!out.empty()) out += ", ";
    out += fmt::format("{} weight={}", rule.dataset, rule.weight);
    if (rule.limit.value != 0) out += fmt::format(" limit={}", rule.limit.value);
  }
  return out;
}

ShareRule share_rule_of(const std::vector<ShareRule>& rules, std::string_view public_id) {
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const ShareRule& rule) {
    return public_id.starts_with(rule.dataset);
  });
  return found == rules.end() ? ShareRule{} : *found;
}

}  // namespace quiver
