#include "plan_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/settings.h"
#include "base/share_rules.h"
#include "base/toml.h"
#include "cache/policy/pinned_set.h"

namespace quiver {

namespace {

// As fast as it is fed: far above what its link gives.
constexpr double kUnlimited = 100;
constexpr double kWindow = 0.02;          // of the dataset, unless it is said
constexpr std::uint64_t kMost = 100'000;  // datasets, and jobs

Error bad(const std::string& what, const std::string& value, const std::string& accepted) {
  return error(Code::kInvalid, "{} cannot be '{}'; write {}", what, value, accepted);
}

Result<Bytes> size_of(const std::string& what, const std::string& text) {
  const auto size = Size{Bytes(1)}.read(text);
  if (!size) return bad(what, text, Size{Bytes(1)}.accepted());
  return *size;
}

Result<double> rate_of(const std::string& what, const std::string& text) {
  const auto rate = Size{Bytes(1), true}.read(text);
  if (!rate) return bad(what, text, "a rate such as 50MB/s");
  return static_cast<double>(rate->value);
}

// What all of it occupies in the cache: its rows and the rounding of its bands (pinned_set.h).
Bytes disk_need(Bytes bytes, std::uint64_t items) {
  const std::uint64_t bands = std::clamp<std::uint64_t>(bytes.value / (512 << 10), 1, 256);
  return bytes + Bytes(items * cache::kRowCost + bands * cache::kBandCost);
}

// A table of the file; each name may be asked for once, and none may be left over.
class Table {
 public:
  Table(const toml::table& table, std::string what) : table_(table), what_(std::move(what)) {}

  std::string what(std::string_view name) const { return fmt::format("{} of {}", name, what_); }
  Result<std::optional<std::string>> text(std::string_view name) {
    known_.push_back(name);
    const toml::node* node = table_.get(name);
    if (node == nullptr) return std::optional<std::string>();
    if (const auto* its = node->as_string()) return std::optional(its->get());
    if (const auto* its = node->as_integer()) return std::optional(fmt::format("{}", its->get()));
    if (const auto* its = node->as_floating_point()) {
      return std::optional(fmt::format("{}", its->get()));
    }
    return error(Code::kInvalid, "{} is not a single value", what(name));
  }
  Result<std::string> needed(std::string_view name) {
    auto its = TRY(text(name));
    if (!its) return error(Code::kInvalid, "{} is missing; write {} = …", what(name), name);
    return *its;
  }
  Result<double> weight() {
    const auto its = TRY(text("weight"));
    if (!its) return 1.0;
    const auto rule = ShareRuleList{}.read("0000 weight=" + *its);
    if (!rule) return bad(what("weight"), *its, "a number above 0 and up to 1000");
    return rule->front().weight;
  }
  Status nothing_else() const {
    for (const auto& [key, value] : table_) {
      if (std::count(known_.begin(), known_.end(), key.str()) != 0) continue;
      return error(Code::kInvalid, "{} has no '{}'; it has {}", what_, std::string(key.str()),
                   fmt::join(known_, ", "));
    }
    return {};
  }

 private:
  const toml::table& table_;
  const std::string what_;
  std::vector<std::string_view> known_;
};

// Rates of links by name; "20MB/s" is a link of its own name.
class Links {
 public:
  Status add(const toml::table& table) {
    for (const auto& [name, node] : table) {
      const auto* text = node.as_string();
      if (text == nullptr) {
        return bad("the link " + std::string(name.str()), "", "a rate such as \"50MB/s\"");
      }
      const double rate = TRY(rate_of("the link " + std::string(name.str()), text->get()));
      names_.emplace_back(name.str());
      rates_.push_back(rate);
    }
    return {};
  }
  Result<std::size_t> index_of(const std::string& what, const std::string& name) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) return static_cast<std::size_t>(found - names_.begin());
    rates_.push_back(TRY(rate_of(what, name)));
    names_.push_back(name);
    return rates_.size() - 1;
  }
  const std::vector<double>& rates() const { return rates_; }

 private:
  std::vector<std::string> names_;
  std::vector<double> rates_;
};

struct Defaults {
  std::string link;
  std::string window;
};

Result<Bytes> window_of(const std::string& what, const std::string& text, Bytes bytes) {
  if (text.empty()) {
    return Bytes(static_cast<std::uint64_t>(kWindow * static_cast<double>(bytes.value)));
  }
  const auto its = SizeOrPercent{}.read(text);
  if (!its) return bad(what, text, SizeOrPercent{}.accepted());
  if (its->size) return *its->size;
  return Bytes(static_cast<std::uint64_t>(*its->share * static_cast<double>(bytes.value)));
}

Status add_dataset(Plan& plan, Links& links, const Defaults& defaults, Table table) {
  const std::string name = TRY(table.needed("name"));
  const Bytes bytes = TRY(size_of(table.what("bytes"), TRY(table.needed("bytes"))));
  const auto items = TRY(table.text("items"));
  std::uint64_t count = 0;
  if (items) count = TRY(size_of(table.what("items"), *items))
  .value;
  cache::DatasetDemand demand;
  demand.need = disk_need(bytes, count);
  const auto window = TRY(table.text("window"));
  demand.window = TRY(window_of(table.what("window"), window.value_or(defaults.window), bytes));
  if (const auto limit = TRY(table.text("limit"))) {
    demand.limit = TRY(size_of(table.what("limit"), *limit));
  }
  const std::string link = TRY(table.text("link"))
  .value_or(defaults.link);
  if (link.empty()) {
    return error(Code::kInvalid, "{} is missing; write link = \"50MB/s\" there or for all",
                 table.what("link"));
  }
  demand.link = TRY(links.index_of(table.what("link"), link));
  TRY(table.nothing_else());
  if (std::ranges::count(plan.datasets, name, &PlanDataset::name) != 0) {
    return error(Code::kInvalid, "there are two datasets '{}'; give each a name of its own", name);
  }
  plan.datasets.push_back({name, bytes});
  plan.demands.datasets.push_back(demand);
  return {};
}

Status add_job(Plan& plan, const Links& links, Table table) {
  const std::string dataset = TRY(table.needed("dataset"));
  const auto found = std::ranges::find(plan.datasets, dataset, &PlanDataset::name);
  if (found == plan.datasets.end()) {
    std::vector<std::string_view> names;
    for (const PlanDataset& each : plan.datasets) names.push_back(each.name);
    return error(Code::kInvalid, "there is no dataset '{}'; the datasets are {}", dataset,
                 fmt::join(names, ", "));
  }
  cache::JobDemand job;
  job.dataset = static_cast<std::size_t>(found - plan.datasets.begin());
  const auto speed = TRY(table.text("speed"));
  job.rate = kUnlimited * links.rates()[plan.demands.datasets[job.dataset].link];
  if (speed) job.rate = TRY(rate_of(table.what("speed"), *speed));
  job.weight = TRY(table.weight());
  const auto name = TRY(table.text("name"));
  TRY(table.nothing_else());
  plan.jobs.push_back({name.value_or(dataset), static_cast<double>(found->bytes.value), !speed});
  plan.demands.jobs.push_back(job);
  return {};
}

// Each table of an array, [[name]] in the file.
template <class F>
Status each_of(const toml::table& root, std::string_view name, F&& f) {
  const toml::node* node = root.get(name);
  if (node == nullptr) return {};
  const toml::array* all = node->as_array();
  if (all == nullptr || !all->is_array_of_tables()) {
    return error(Code::kInvalid, "'{0}' is written as tables: [[{0}]]", name);
  }
  if (all->size() > kMost)
    return error(Code::kInvalid, "there are more than {} of {}", kMost, name);
  std::size_t number = 0;
  for (const toml::node& one : *all) {
    TRY(f(Table(*one.as_table(), fmt::format("{} {}", name, ++number))));
  }
  return {};
}

Result<std::vector<Bytes>> caches_of(const toml::table& root) {
  std::vector<Bytes> out;
  const toml::node* node = root.get("cache");
  const auto add = [&](const toml::node& one) -> Status {
    const auto* text = one.as_string();
    if (text == nullptr) return bad("cache", "", "a size such as \"20GB\", or a list of them");
    out.push_back(TRY(size_of("cache", text->get())));
    return {};
  };
  if (node == nullptr) return error(Code::kInvalid, "cache is missing; write cache = \"20GB\"");
  if (const toml::array* all = node->as_array()) {
    for (const toml::node& one : *all) {
      TRY(add(one));
    }
    if (out.empty()) return bad("cache", "[]", "at least one size such as \"20GB\"");
    return out;
  }
  TRY(add(*node));
  return out;
}

Status check_names(const toml::table& root, const std::string& name) {
  const std::vector<std::string_view> known{"cache", "link", "window", "links", "dataset", "job"};
  for (const auto& [key, value] : root) {
    if (std::count(known.begin(), known.end(), key.str()) != 0) continue;
    return error(Code::kInvalid, "'{}' in {} is not known; a plan has {}", std::string(key.str()),
                 name, fmt::join(known, ", "));
  }
  return {};
}

}  // namespace

Result<Plan> read_plan(const std::string& text, const std::string& name) {
  const toml::parse_result parsed = toml::parse(text, name);
  if (!parsed) {
    const toml::parse_error& failure = parsed.error();
    return error(Code::kInvalid, "{} is not TOML (line {}, column {}: {}); mend it", name,
                 failure.source().begin.line, failure.source().begin.column, failure.description());
  }
  const toml::table& root = parsed.table();
  TRY(check_names(root, name));
  Plan plan;
  plan.caches = TRY(caches_of(root));
  Links links;
  if (const auto* table = root["links"].as_table()) TRY(links.add(*table));
  const Defaults defaults{root["link"].value_or(std::string()),
                          root["window"].value_or(std::string())};
  TRY(each_of(root, "dataset",
              [&](Table table) { return add_dataset(plan, links, defaults, std::move(table)); }));
  TRY(each_of(root, "job", [&](Table table) { return add_job(plan, links, std::move(table)); }));
  if (plan.jobs.empty()) {
    return error(Code::kInvalid, "{} has no job; write at least one [[dataset]] and one [[job]]",
                 name);
  }
  plan.demands.links = links.rates();
  return plan;
}

Result<Plan> plan_of(const PlanArguments& arguments) {
  if (arguments.bytes.empty() || arguments.link.empty() || arguments.caches.empty()) {
    return error(
        Code::kInvalid,
        "say what to plan: a file, --running, or --bytes, --link and --cache of one dataset");
  }
  toml::table dataset{{"name", "the dataset"}, {"bytes", arguments.bytes}};
  toml::table job{{"dataset", "the dataset"}};
  if (!arguments.speed.empty()) job.insert("speed", arguments.speed);
  Plan plan;
  Links links;
  TRY(add_dataset(plan, links, {arguments.link, ""}, Table(dataset, "the dataset")));
  for (int k = 0; k < arguments.jobs; ++k) {
    job.insert_or_assign("name", fmt::format("job {}", k + 1));
    TRY(add_job(plan, links, Table(job, "the job")));
  }
  plan.caches = TRY(plan_caches(arguments.caches));
  plan.demands.links = links.rates();
  return plan;
}

Result<std::vector<Bytes>> plan_caches(const std::vector<std::string>& sizes) {
  std::vector<Bytes> out;
  for (const std::string& size : sizes) out.push_back(TRY(size_of("cache", size)));
  return out;
}

}  // namespace quiver
