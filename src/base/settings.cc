#include "base/settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "base/toml.h"

namespace quiver {

namespace {

constexpr std::string_view kPrefix = "QUIVER_";

Error not_accepted() {
  return Error{Code::kInvalid, ""};
}

// The number at the start of `text`, and what follows it without blanks.
struct Measure {
  double number;
  std::string_view unit;
};
Result<Measure> read_measure(std::string_view text) {
  double number = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || !std::isfinite(number)) return not_accepted();
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  return Measure{number, unit};
}

Result<double> read_share(std::string_view text) {
  Measure m = TRY(read_measure(text));
  if (m.unit != "%") return not_accepted();
  return m.number / 100;
}

// 0.29 * 100 is 28.999999999999996: ten digits are what people write.
std::string write_share(double share) {
  return fmt::format("{:.10g}%", share * 100);
}

// Exact: the largest unit of which it is a whole number.
std::string write_bytes(Bytes value) {
  struct Unit {
    std::uint64_t factor;
    std::string_view name;
  };
  static constexpr std::array<Unit, 8> kUnits{{{1ull << 40, "TiB"},
                                               {1'000'000'000'000, "TB"},
                                               {1ull << 30, "GiB"},
                                               {1'000'000'000, "GB"},
                                               {1ull << 20, "MiB"},
                                               {1'000'000, "MB"},
                                               {1ull << 10, "KiB"},
                                               {1'000, "kB"}}};
  for (const Unit& u : kUnits) {
    if (value.value > 0 && value.value % u.factor == 0) {
      return fmt::format("{}{}", value.value / u.factor, u.name);
    }
  }
  return fmt::format("{}", value.value);
}

// "; did you mean 'x'?", or all the names when none is near.
std::string suggestion(std::string_view near, const std::vector<std::string_view>& names) {
  if (!near.empty()) return fmt::format("; did you mean '{}'?", near);
  std::string all;
  for (std::string_view n : names) all += fmt::format("{}{}", all.empty() ? "" : ", ", n);
  return fmt::format("; the settings are {}", all);
}

// Looks settings up by name and notes what was given, weakest source first.
class Choosing {
 public:
  explicit Choosing(const std::vector<FieldInfo>& fields) : chosen_(fields.size()) {
    for (const FieldInfo& f : fields) names_.push_back(f.name);
  }

  Status give(std::string_view name, std::string text, Provenance from) {
    auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      return error(Code::kInvalid, "unknown setting '{}' ({}){}", name, from.where,
                   suggestion(nearest_name(name, names_), names_));
    }
    chosen_[static_cast<std::size_t>(found - names_.begin())] = {std::move(text), std::move(from)};
    return {};
  }

  Status give_variable(const std::string& variable, std::string text) {
    for (std::string_view name : names_) {
      if (environment_name(name) != variable) continue;
      if (text.empty()) return {};
      return give(name, std::move(text),
                  {Source::kEnvironment, "environment variable " + variable});
    }
    std::string lower = variable.substr(kPrefix.size());
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::string_view near = nearest_name(lower, names_);
    return error(Code::kInvalid, "unknown setting in environment variable {}{}", variable,
                 suggestion(near.empty() ? "" : environment_name(near), names_));
  }

  std::vector<Chosen> take() && { return std::move(chosen_); }

 private:
  std::vector<std::string_view> names_;
  std::vector<Chosen> chosen_;
};

Result<std::string> text_of(const toml::node& node) {
  if (auto s = node.as_string()) return s->get();
  if (auto b = node.as_boolean()) return std::string(b->get() ? "true" : "false");
  if (auto i = node.as_integer()) return fmt::format("{}", i->get());
  if (auto f = node.as_floating_point()) return fmt::format("{}", f->get());
  return not_accepted();
}

Status give_file(Choosing& choosing, const SettingsFile& file) {
  toml::parse_result parsed = toml::parse(file.text, file.name);
  if (!parsed) {
    const toml::parse_error& e = parsed.error();
    return error(Code::kInvalid,
                 "the settings file {} is not TOML (line {}, column {}: {}); mend it", file.name,
                 e.source().begin.line, e.source().begin.column, e.description());
  }
  for (const auto& [key, node] : parsed.table()) {
    auto text = text_of(node);
    if (!text) {
      return error(Code::kInvalid,
                   "'{}' in {} is not a single value; settings are lines of the form name = value",
                   key.str(), file.name);
    }
    Status given = choosing.give(key.str(), std::move(text).value(), {Source::kFile, file.name});
    if (!given) return given;
  }
  return {};
}

Status give_environment(Choosing& choosing, const SettingsInputs& inputs) {
  for (const std::string& variable : inputs.environment_names) {
    if (!variable.starts_with(kPrefix)) continue;
    if (std::count(inputs.other_names.begin(), inputs.other_names.end(), variable) > 0) continue;
    auto text = inputs.environment(variable);
    if (!text) continue;
    if (Status given = choosing.give_variable(variable, std::move(*text)); !given) return given;
  }
  return {};
}

std::string or_empty(std::string_view text, const FieldInfo& field) {
  if (!text.empty()) return std::string(text);
  return field.when_empty.empty() ? "(empty)" : fmt::format("({})", field.when_empty);
}

}  // namespace

Result<std::string> LocalAddress::read(std::string_view text) const {
  if (text.empty() || text.starts_with('/')) return std::string(text);
  for (const std::string_view host : {"127.0.0.1:", "[::1]:"}) {
    if (!text.starts_with(host)) continue;
    const std::string_view digits = text.substr(host.size());
    std::uint16_t port = 0;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    const bool all = ec == std::errc() && end == digits.data() + digits.size();
    if (all && port != 0) return std::string(text);
  }
  return not_accepted();
}

Result<bool> Switch::read(std::string_view text) const {
  for (auto yes : {"true", "on", "yes", "1"}) {
    if (text == yes) return true;
  }
  for (auto no : {"false", "off", "no", "0"}) {
    if (text == no) return false;
  }
  return not_accepted();
}

Result<int> Integer::read(std::string_view text) const {
  int value = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool whole = ec == std::errc() && end == text.data() + text.size();
  if (!whole || value < least || value > most) return not_accepted();
  return value;
}
std::string Integer::accepted() const {
  return fmt::format("a whole number from {} to {}", least, most);
}

Result<Bytes> Size::read(std::string_view text) const {
  if (rate && text.ends_with("/s")) text.remove_suffix(2);
  Bytes value = TRY(parse_bytes(text));
  if (value < least) return not_accepted();
  return value;
}
std::string Size::write(Bytes value) const {
  return write_bytes(value) + (rate ? "/s" : "");
}
std::string Size::accepted() const {
  std::string bound = least == Bytes() ? "" : fmt::format(" of at least {}", write_bytes(least));
  return rate ? "a rate such as 50MB/s, or 0"
              : fmt::format("a size{} such as 20GB or 512MiB", bound);
}

Result<SizeOrShare> SizeOrPercent::read(std::string_view text) const {
  if (text.empty()) return SizeOrShare{};
  if (!text.ends_with('%')) return SizeOrShare {
      .size = TRY(parse_bytes(text))
      , .share = {}
    };
  double share = TRY(read_share(text));
  if (!(share > 0 && share <= 1)) return not_accepted();
  return SizeOrShare{.size = {}, .share = share};
}
std::string SizeOrPercent::write(const SizeOrShare& value) const {
  if (value.size) return write_bytes(*value.size);
  return value.share ? write_share(*value.share) : "";
}

Result<double> Percent::read(std::string_view text) const {
  double share = TRY(read_share(text));
  if (!(share >= least && share <= most)) return not_accepted();
  return share;
}
std::string Percent::write(double value) const {
  return write_share(value);
}
std::string Percent::accepted() const {
  return fmt::format("a share from {} to {}, such as 5%", write(least), write(most));
}

Result<std::chrono::seconds> Seconds::read(std::string_view text) const {
  static constexpr std::array<std::pair<std::string_view, int>, 5> kUnits{
      {{"", 1}, {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}}};
  Measure m = TRY(read_measure(text));
  for (auto [name, factor] : kUnits) {
    if (name != m.unit) continue;
    double value = std::round(m.number * factor);
    bool inside =
        value >= static_cast<double>(least.count()) && value <= static_cast<double>(most.count());
    if (!inside) return not_accepted();
    return std::chrono::seconds(static_cast<std::int64_t>(value));
  }
  return not_accepted();
}
std::string Seconds::accepted() const {
  return fmt::format("a time from {} to {}, such as 90s, 10min or 2h", write(least), write(most));
}

std::string environment_name(std::string_view setting) {
  std::string out(kPrefix);
  for (unsigned char c : setting) out += static_cast<char>(std::toupper(c));
  return out;
}

Result<std::vector<Chosen>> choose(const std::vector<FieldInfo>& fields,
                                   const SettingsInputs& inputs) {
  Choosing choosing(fields);
  if (inputs.file) {
    if (Status s = give_file(choosing, *inputs.file); !s) return std::move(s).error();
  }
  if (Status s = give_environment(choosing, inputs); !s) return std::move(s).error();
  for (const auto& [name, text] : inputs.arguments) {
    Status given = choosing.give(name, text, {Source::kArgument, "argument"});
    if (!given) return std::move(given).error();
  }
  return std::move(choosing).take();
}

Error bad_value(const FieldInfo& field, const Chosen& chosen) {
  return error(Code::kInvalid, "setting {} cannot be '{}' ({}); write {}", field.name, chosen.text,
               chosen.from.where, field.accepted);
}

std::string explain_field(const FieldInfo& field, std::string_view value, const Provenance& from) {
  std::string unit = field.unit.empty() ? "" : fmt::format(" [{}]", field.unit);
  return fmt::format("{} = {}\n    from: {}\n    {}{}\n", field.name, or_empty(value, field),
                     from.where, field.doc, unit);
}

std::string reference_heading() {
  return "| setting | default | unit | accepted | what it does |\n|---|---|---|---|---|\n";
}
std::string reference_row(const FieldInfo& field) {
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", field.name,
                     or_empty(field.default_text, field), field.unit, field.accepted, field.doc);
}

}  // namespace quiver
