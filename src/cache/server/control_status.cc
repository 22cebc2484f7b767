// What the daemon tells of itself: no roots, hashes, URLs or credentials, only public ids.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cache/server/control.h"

namespace quiver::cache {

namespace {

using Json = nlohmann::json;

// Of what was staged or missed, what another job's fetch had brought; the rest is its own.
std::uint64_t shared(const Served& served) {
  return std::min(served.shared, served.counters.staged + served.counters.missed);
}

std::uint64_t own(const Served& served) {
  return served.counters.staged + served.counters.missed - shared(served);
}

Json served_json(const Served& served) {
  const JobCounters& c = served.counters;
  return {{"items", c.items()},
          {"bytes", c.bytes},
          {"steps", c.steps},
          {"pinned", c.pinned},
          {"shared", shared(served)},
          {"own", own(served)},
          {"direct", c.direct},
          {"staged", c.staged},
          {"missed", c.missed},
          {"waited_link_s", static_cast<double>(c.waited_link_ns) / 1e9},
          {"waited_decode_s", static_cast<double>(c.waited_decode_ns) / 1e9}};
}

Json recent_json(const Recent<Served>& recent) {
  const auto rate = [&](auto part) { return std::max(0.0, recent.per_second(part)); };
  const auto of = [&](std::uint64_t JobCounters::*field) {
    return rate([field](const Served& s) { return s.counters.*field; });
  };
  return {{"seconds", recent.seconds()},
          {"items_per_s", rate([](const Served& s) { return s.counters.items(); })},
          {"bytes_per_s", of(&JobCounters::bytes)},
          {"pinned_per_s", of(&JobCounters::pinned)},
          {"shared_per_s", rate(shared)},
          {"own_per_s", rate(own)},
          {"direct_per_s", of(&JobCounters::direct)},
          {"waiting_link", std::min(1.0, of(&JobCounters::waited_link_ns) / 1e9)},
          {"waiting_decode", std::min(1.0, of(&JobCounters::waited_decode_ns) / 1e9)}};
}

Json job_json(const JobEntry& job, bool leads) {
  Json ranks = Json::array();
  for (const auto& [number, rank] : job.ranks) {
    const ReportRequest report = rank.report.value_or(ReportRequest{});
    const double samples = static_cast<double>(report.samples);
    ranks.push_back({{"name", job.name},
                     {"job", job.number.value},
                     {"rank", number},
                     {"world", job.world},
                     {"epoch", report.epoch},
                     {"step", report.step},
                     {"steps", report.steps},
                     {"samples", report.samples},
                     {"direct", report.direct},
                     {"hit_ratio", samples == 0 ? 0 : static_cast<double>(report.hits) / samples},
                     {"waited_link_s", report.waited_link_s},
                     {"waited_decode_s", report.waited_decode_s},
                     {"strict", rank.epoch.strict},
                     {"taken", rank.taken},
                     {"to_take", rank.epoch.part},
                     {"pace",
                      {{"items_per_s", rank.pace.items_per_second},
                       {"steps", rank.pace.steps},
                       {"error", rank.pace.error}}},
                     {"served", served_json(rank.served)},
                     {"recent", recent_json(rank.recent)},
                     {"leader", leads}});
  }
  return ranks;
}

Json requests_json(const OriginStats& requests) {
  return {{"list", requests.lists},
          {"head", requests.heads},
          {"get", requests.gets},
          {"retried", requests.retries}};
}

Json dataset_json(DatasetState& dataset, const OriginStats& requests) {
  Json again = Json::object();
  for (std::size_t i = 0; i < kAgainReasons; ++i) {
    const auto why = static_cast<Again>(i);
    again[name(why)] = dataset.ledger.read_again(why).value;
  }
  Json jobs = Json::array();
  for (const auto& [token, job] : dataset.jobs) {
    for (auto& rank : job_json(job, dataset.plan().leader() == job.number)) jobs.push_back(rank);
  }
  return {{"id", dataset.public_id()},
          {"items", dataset.size()},
          {"bytes", dataset.manifest().total_bytes().value},
          {"items_here", dataset.items_here()},
          {"bytes_here", dataset.bytes_here().value},
          {"pinned_items", dataset.pinned().items.count()},
          {"pinned_bytes", dataset.pinned().bytes.value},
          {"pinned_items_here", dataset.pinned_here()},
          {"pinned_bytes_here", dataset.pinned_bytes_here().value},
          {"share", dataset.share().value},
          {"window", dataset.window().value},
          {"staged", dataset.plan().held().value},
          {"origin_bytes", dataset.counters.origin_bytes},
          {"origin_reads", dataset.counters.origin_reads},
          {"origin_errors", dataset.counters.origin_errors},
          {"origin_requests", requests_json(requests)},
          {"origin_bytes_per_s",
           dataset.recent_bytes.per_second([](std::uint64_t bytes) { return bytes; })},
          {"read_again", std::move(again)},
          {"share_reason", dataset.share_reason},
          {"evicted_items", dataset.counters.evicted_items},
          {"link_bytes_per_s", dataset.link_rate},
          {"in_use", !dataset.unused_since.has_value()},
          {"jobs", std::move(jobs)}};
}

// What `quiver plan` divides a cache of another size by.
Json demand_json(const DatasetDemand& demand, double weight) {
  Json out{{"need", demand.need.value},
           {"window", demand.window.value},
           {"link", demand.link},
           {"weight", weight}};
  if (demand.limit != kNoLimit) out["limit"] = demand.limit.value;
  return out;
}

}  // namespace

bool Control::claimed(const Sha256& hash) const {
  return std::any_of(datasets_.begin(), datasets_.end(),
                     [&](const auto& entry) { return !entry.second->entries(hash).empty(); });
}

void Control::note_rates(Instant now) {
  for (auto& [root, dataset] : datasets_) {
    dataset->recent_bytes.add(now, dataset->counters.origin_bytes);
    for (auto& [token, job] : dataset->jobs) {
      for (auto& [number, rank] : job.ranks) rank.recent.add(now, rank.served);
    }
  }
}

OriginStats Control::requests_of(const DatasetState& dataset) const {
  OriginStats sum = dataset.requests;
  for (const auto& [number, session] : sessions_) {
    for (const SessionDataset& open : session.datasets) {
      if (open.dataset == &dataset) sum += open.origin->stats();
    }
  }
  return sum;
}

// Of the datasets in use, with the windows that they would have in a cache with room for them.
std::map<const DatasetState*, DatasetDemand> Control::demands() const {
  const Standing now = standing();
  std::map<std::size_t, double> users;
  for (const DatasetDemand& demand : now.demands.datasets) users[demand.link] += 1;
  std::map<const DatasetState*, DatasetDemand> out;
  for (std::size_t d = 0; d < now.datasets.size(); ++d) {
    const DatasetState& dataset = *now.datasets[d];
    DatasetDemand demand = now.demands.datasets[d];
    const double link = dataset.link_rate / users[demand.link];
    demand.window = std::max(demand.window, window_of(dataset, demand.need, Bytes(0), link).window);
    out.emplace(&dataset, demand);
  }
  return out;
}

std::string Control::status_json(const ServerFigures& figures) const {
  const StoreStats store = context_.store.stats();
  const std::string reason = trouble();
  Json datasets = Json::array();
  const auto demands = this->demands();
  for (const auto& [root, dataset] : datasets_) {
    datasets.push_back(dataset_json(*dataset, requests_of(*dataset)));
    const auto demand = demands.find(dataset.get());
    if (demand == demands.end()) continue;
    const ShareRule rule = share_rule_of(context_.settings.shares, dataset->public_id());
    datasets.back()["demand"] = demand_json(demand->second, rule.weight);
  }
  // What lies on disk for datasets that nobody has opened yet.
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> others;
  for (const SegmentInfo& segment : context_.store.segments()) {
    if (segment.lane.group == "incoming" || dataset_named(segment.lane.group) != nullptr) continue;
    others[segment.lane.group].first += segment.items;
    others[segment.lane.group].second += segment.data.value;
  }
  for (const auto& [group, here] : others) {
    datasets.push_back({{"id", group},
                        {"items_here", here.first},
                        {"bytes_here", here.second},
                        {"in_use", false},
                        {"jobs", Json::array()}});
  }
  const auto up = std::chrono::duration_cast<std::chrono::seconds>(context_.clock.now() - started_);
  return Json{
      {"version", context_.version},
      {"pid", context_.pid},
      {"uptime_s", up.count()},
      {"cache_directory", context_.cache_directory},
      {"disk",
       {{"limit", context_.disk_limit.value},
        {"limit_now", store.limit.value},
        {"shared", shared_budget().value},
        {"allocated", store.allocated.value},
        {"items", store.items},
        {"segments", store.segments},
        {"quarantined", store.quarantined},
        {"suspect", store.suspect.value},
        {"unusable", store.unusable},
        {"leaving", store.leaving.value}}},
      {"memory",
       {{"limit", context_.settings.memory_limit.value},
        {"used", memory().value},
        {"requests", figures.requests.value}}},
      {"sessions", sessions_.size()},
      {"connections",
       {{"limit", context_.settings.max_connections}, {"used", figures.connections}}},
      {"fetches", {{"running", in_pool_}, {"queued", queue_.size()}}},
      {"datasets", std::move(datasets)},
      {"unclaimed", {{"items", figures.unclaimed.items}, {"bytes", figures.unclaimed.bytes.value}}},
      {"state", reason.empty() ? "ok" : "degraded"},
      {"reason", reason}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quiver::cache
