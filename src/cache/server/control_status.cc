// What the daemon tells of itself: no roots, hashes, URLs or credentials, only public ids.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cache/server/control.h"

namespace quiver::cache {

namespace {

using Json = nlohmann::json;

Json job_json(const JobEntry& job, bool leads) {
  Json ranks = Json::array();
  for (const auto& [number, rank] : job.ranks) {
    const ReportRequest report = rank.report.value_or(ReportRequest{});
    const double samples = static_cast<double>(report.samples);
    ranks.push_back({{"name", job.name},
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
                     {"items_per_second", rank.items_per_second},
                     {"leader", leads}});
  }
  return ranks;
}

Json dataset_json(DatasetState& dataset) {
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
          {"evicted_items", dataset.counters.evicted_items},
          {"link_bytes_per_s", dataset.link_rate},
          {"in_use", !dataset.unused_since.has_value()},
          {"jobs", std::move(jobs)}};
}

}  // namespace

bool Control::claimed(const Sha256& hash) const {
  return std::any_of(datasets_.begin(), datasets_.end(),
                     [&](const auto& entry) { return !entry.second->entries(hash).empty(); });
}

std::string Control::status_json(const Unclaimed& unclaimed, std::size_t connections) const {
  const StoreStats store = context_.store.stats();
  const std::string reason = trouble();
  Json datasets = Json::array();
  for (const auto& [root, dataset] : datasets_) datasets.push_back(dataset_json(*dataset));
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
        {"allocated", store.allocated.value},
        {"items", store.items},
        {"segments", store.segments},
        {"quarantined", store.quarantined},
        {"suspect", store.suspect.value}}},
      {"memory", {{"limit", context_.settings.memory_limit.value}, {"used", memory().value}}},
      {"sessions", sessions_.size()},
      {"connections", {{"limit", context_.settings.max_connections}, {"used", connections}}},
      {"fetches", {{"running", in_pool_}, {"queued", directed_.size() + staged_.size()}}},
      {"datasets", std::move(datasets)},
      {"unclaimed", {{"items", unclaimed.items}, {"bytes", unclaimed.bytes.value}}},
      {"state", reason.empty() ? "ok" : "degraded"},
      {"reason", reason}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quiver::cache
