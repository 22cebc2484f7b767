// Settings: a plain struct, and a table that says of each of its fields what people need to know.
//
//   struct Limits { int threads = 4; Bytes memory = 1_GiB; };
//   const std::vector<Field<Limits>> fields{
//       field(&Limits::threads, {"threads", "threads", "how many files are read at once"},
//       Integer{1, 64}), field(&Limits::memory, {"memory", "bytes", "limit of the memory used"},
//       Size{1_MiB})};
//   Limits limits;
//   std::vector<Provenance> sources = TRY(load(fields, inputs, limits));
//
// A field's default is what its member is initialised with. Its value comes from an argument, else
// from the environment (QUIVER_THREADS; empty counts as unset), else from the file (TOML, flat),
// else it stays the default. Unknown names are refused with the nearest known one, bad values with
// where they came from and what is accepted. Pure: the caller reads the file and the environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace quiver {

// "20GB" or "75%"; neither: left to Quiver.
struct SizeOrShare {
  std::optional<Bytes> size;
  std::optional<double> share;  // 0 to 1
  bool operator==(const SizeOrShare&) const = default;
};

// Kinds of field: how a value is read, written and described. read(write(v)) == v.
struct Text {
  using Value = std::string;
  Result<std::string> read(std::string_view text) const { return std::string(text); }
  std::string write(const std::string& value) const { return value; }
  std::string accepted() const { return "any text"; }
};
// Where something listens that this machine alone can reach.
struct LocalAddress {
  using Value = std::string;
  Result<std::string> read(std::string_view text) const;
  std::string write(const std::string& value) const { return value; }
  std::string accepted() const {
    return "127.0.0.1:PORT, [::1]:PORT, or the path of a socket from /";
  }
};
struct Switch {
  using Value = bool;
  Result<bool> read(std::string_view text) const;
  std::string write(bool value) const { return value ? "true" : "false"; }
  std::string accepted() const { return "true or false"; }
};
struct Integer {
  using Value = int;
  int least, most;
  Result<int> read(std::string_view text) const;
  std::string write(int value) const { return fmt::format("{}", value); }
  std::string accepted() const;
};
struct Size {
  using Value = Bytes;
  Bytes least;
  bool rate = false;  // bytes per second: "/s" may follow
  Result<Bytes> read(std::string_view text) const;
  std::string write(Bytes value) const;
  std::string accepted() const;
};
struct SizeOrPercent {
  using Value = SizeOrShare;
  Result<SizeOrShare> read(std::string_view text) const;
  std::string write(const SizeOrShare& value) const;
  std::string accepted() const { return "a size such as 20GB, or a share such as 75%"; }
};
struct Percent {
  using Value = double;  // 0 to 1
  double least, most;
  Result<double> read(std::string_view text) const;
  std::string write(double value) const;
  std::string accepted() const;
};
struct Seconds {
  using Value = std::chrono::seconds;
  Value least, most;
  Result<Value> read(std::string_view text) const;
  std::string write(Value value) const { return fmt::format("{}s", value.count()); }
  std::string accepted() const;
};
template <class E>
struct Choice {
  using Value = E;
  std::vector<std::pair<std::string_view, E>> names;
  Result<E> read(std::string_view text) const {
    for (const auto& [name, value] : names) {
      if (name == text) return value;
    }
    return Error{Code::kInvalid, ""};
  }
  std::string write(E value) const {
    for (const auto& [name, v] : names) {
      if (v == value) return std::string(name);
    }
    return "";
  }
  std::string accepted() const {
    std::string out = "one of";
    for (const auto& [name, value] : names) out += fmt::format(" {}", name);
    return out;
  }
};

struct FieldText {
  std::string_view
      name;  // snake_case, the same in the file, as an argument and in the documentation
  std::string_view unit;  // empty: none
  std::string_view doc;
  std::string_view when_empty = {};  // what an empty value, then allowed, stands for
};
struct FieldInfo : FieldText {
  std::string accepted;
  std::string default_text;
};
template <class S>
struct Field {
  FieldInfo info;
  std::function<Status(S&, std::string_view)> set;  // the error has no message: `accepted` is it
  std::function<std::string(const S&)> get;
};

template <class S, class Kind>
Field<S> field(typename Kind::Value S::*member, FieldText text, Kind kind) {
  return Field<S>{
      .info = {text, kind.accepted(), kind.write(S{}.*member)},
      .set = [=](S& s, std::string_view value) -> Status {
        s.*member = TRY(kind.read(value));
        return {};
      },
      .get = [=](const S& s) { return kind.write(s.*member); },
  };
}

enum class Source { kDefault, kFile, kEnvironment, kArgument };
// Where a value came from: "argument", "environment variable QUIVER_WINDOW", "/etc/quiver.toml".
struct Provenance {
  Source source = Source::kDefault;
  std::string where = "default";
};

struct SettingsFile {
  std::string name;  // for messages
  std::string text;
};
struct SettingsInputs {
  std::map<std::string, std::string> arguments;
  std::function<std::optional<std::string>(const std::string&)> environment;
  std::vector<std::string> environment_names;  // all that are set; only QUIVER_… matter
  std::vector<std::string> other_names;  // QUIVER_… variables that are known but no settings
  std::optional<SettingsFile> file;
};

// "disk_limit" → "QUIVER_DISK_LIMIT".
std::string environment_name(std::string_view setting);

// Part of load(): for each field the text that wins and where it came from; kDefault: none.
struct Chosen {
  std::string text;
  Provenance from;
};
Result<std::vector<Chosen>> choose(const std::vector<FieldInfo>& fields,
                                   const SettingsInputs& inputs);
Error bad_value(const FieldInfo& field, const Chosen& chosen);
std::string explain_field(const FieldInfo& field, std::string_view value, const Provenance& from);
std::string reference_row(const FieldInfo& field);  // a row of a Markdown table
std::string reference_heading();

template <class S>
std::vector<FieldInfo> infos(const std::vector<Field<S>>& fields) {
  std::vector<FieldInfo> out;
  for (const auto& f : fields) out.push_back(f.info);
  return out;
}

// Fills `settings`, which holds its defaults; returns where each field's value came from.
template <class S>
Result<std::vector<Provenance>> load(const std::vector<Field<S>>& fields,
                                     const SettingsInputs& inputs, S& settings) {
  std::vector<Chosen> chosen = TRY(choose(infos(fields), inputs));
  std::vector<Provenance> sources;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    bool given = chosen[i].from.source != Source::kDefault;
    if (given && !fields[i].set(settings, chosen[i].text)) {
      return bad_value(fields[i].info, chosen[i]);
    }
    sources.push_back(chosen[i].from);
  }
  return sources;
}

}  // namespace quiver
