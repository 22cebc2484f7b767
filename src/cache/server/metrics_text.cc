#include "cache/server/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace quiver::cache {

namespace {

using Json = nlohmann::json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;
using Pointer = Json::json_pointer;

// One figure: where it is in an object of the status, and what it is called. Several of a name are
// one family, told apart by a label.
struct Figure {
  const char* pointer;
  const char* name;
  MetricType type;
  const char* help;
  const char* label = "";
  const char* value = "";
  double factor = 1;
};
constexpr auto kCounter = MetricType::Counter;
constexpr auto kGauge = MetricType::Gauge;

constexpr Figure kDaemon[] = {
    {"/uptime_s", "quiver_uptime_seconds", kGauge, "Time since the daemon started."},
    {"/sessions", "quiver_sessions", kGauge, "Processes that use the daemon."},
    {"/connections/used", "quiver_connections", kGauge, "Connections that are being served."},
    {"/connections/limit", "quiver_connections_limit", kGauge,
     "The most connections (max_connections)."},
    {"/fetches/running", "quiver_fetches_running", kGauge,
     "Items that are being read from origins or moved."},
    {"/fetches/queued", "quiver_fetches_queued", kGauge, "Items that wait to be read."},
    {"/disk/limit", "quiver_disk_limit_bytes", kGauge, "The most disk space (disk_limit)."},
    {"/disk/limit_now", "quiver_disk_limit_now_bytes", kGauge,
     "The most disk space now: less than disk_limit while others fill the disk."},
    {"/disk/allocated", "quiver_disk_used_bytes", kGauge, "Disk space that the cache occupies."},
    {"/disk/leaving", "quiver_disk_leaving_bytes", kGauge,
     "Of the occupied disk space, what evictions under way will free."},
    {"/disk/suspect", "quiver_disk_suspect_bytes", kGauge,
     "Cached bytes still to be verified anew after the machine went down uncleanly."},
    {"/disk/items", "quiver_disk_items", kGauge, "Items on disk."},
    {"/disk/segments", "quiver_disk_segments", kGauge, "Segment files on disk."},
    {"/disk/unusable", "quiver_disk_unusable_segments", kGauge,
     "Segment files that could not be read when the daemon started, and were left alone."},
    {"/disk/quarantined", "quiver_disk_quarantined_items_total", kCounter,
     "Items whose copy on disk was found to be bad."},
    {"/memory/limit", "quiver_memory_limit_bytes", kGauge, "The most memory (memory_limit)."},
    {"/memory/used", "quiver_memory_used_bytes", kGauge,
     "Memory for views, bitmaps, the catalog and items being fetched."},
    {"/memory/requests", "quiver_memory_requests_bytes", kGauge,
     "Memory of large requests being handled: items that processes insert."},
    {"/unclaimed/items", "quiver_unclaimed_items", kGauge,
     "Items that a digest brought and no dataset has claimed yet."},
    {"/unclaimed/bytes", "quiver_unclaimed_bytes", kGauge,
     "Bytes that a digest brought and no dataset has claimed yet."}};

constexpr const char* kRequestsHelp = "Requests sent to the dataset's origin, retries included.";
constexpr const char* kAgainHelp =
    "Bytes read from the origin more than once in an epoch of the leading job, by the reason.";
constexpr const char* kRequests = "quiver_dataset_origin_requests_total";
constexpr const char* kAgain = "quiver_dataset_read_again_bytes_total";

constexpr Figure kDatasets[] = {
    {"/items", "quiver_dataset_items", kGauge, "Items of the dataset."},
    {"/bytes", "quiver_dataset_bytes", kGauge, "Size of the dataset."},
    {"/items_here", "quiver_dataset_cached_items", kGauge, "Items of the dataset that are cached."},
    {"/bytes_here", "quiver_dataset_cached_bytes", kGauge, "Bytes of the dataset that are cached."},
    {"/share", "quiver_dataset_share_bytes", kGauge, "The dataset's share of the cache."},
    {"/window", "quiver_dataset_window_bytes", kGauge,
     "Of the share, what staging may use for items fetched ahead."},
    {"/staged", "quiver_dataset_staged_bytes", kGauge, "Bytes that staging holds."},
    {"/pinned_bytes", "quiver_dataset_pinned_bytes", kGauge, "Bytes that are to stay cached."},
    {"/pinned_bytes_here", "quiver_dataset_pinned_cached_bytes", kGauge,
     "Of the bytes that are to stay cached, those that are."},
    {"/origin_bytes", "quiver_dataset_origin_bytes_total", kCounter,
     "Bytes of items read from the origin."},
    {"/origin_reads", "quiver_dataset_origin_reads_total", kCounter,
     "Reads of items from the origin, failed ones included."},
    {"/origin_errors", "quiver_dataset_origin_errors_total", kCounter,
     "Reads of items that failed."},
    {"/origin_requests/list", kRequests, kCounter, kRequestsHelp, "kind", "list"},
    {"/origin_requests/head", kRequests, kCounter, kRequestsHelp, "kind", "head"},
    {"/origin_requests/get", kRequests, kCounter, kRequestsHelp, "kind", "get"},
    {"/origin_requests/retried", "quiver_dataset_origin_retries_total", kCounter,
     "Requests to the dataset's origin that were sent again."},
    {"/link_bytes_per_s", "quiver_dataset_link_bytes_per_second", kGauge,
     "What the link to the origin gave when it was what was waited for; 0: not known."},
    {"/evicted_items", "quiver_dataset_evicted_items_total", kCounter,
     "Items that were cached and are not any more."},
    {"/read_again/new_epoch", kAgain, kCounter, kAgainHelp, "reason", "new_epoch"},
    {"/read_again/left_staging", kAgain, kCounter, kAgainHelp, "reason", "left_staging"},
    {"/read_again/no_room", kAgain, kCounter, kAgainHelp, "reason", "no_room"},
    {"/read_again/damaged", kAgain, kCounter, kAgainHelp, "reason", "damaged"},
    {"/read_again/share_moved", kAgain, kCounter, kAgainHelp, "reason", "share_moved"},
    {"/read_again/strict", kAgain, kCounter, kAgainHelp, "reason", "strict"}};

constexpr const char* kServed = "quiver_job_served_items_total";
constexpr const char* kServedHelp =
    "Items that the training loop got: pinned (kept when the epoch began), staged (fetched ahead), "
    "missed (fetched while they were waited for), direct (read past the cache).";
constexpr const char* kWaited = "quiver_job_waited_seconds_total";
constexpr const char* kWaitedHelp =
    "Time that the training loop waited: link (the bytes were not there), decode (they were).";

constexpr Figure kJobs[] = {
    {"/served/pinned", kServed, kCounter, kServedHelp, "kind", "pinned"},
    {"/served/staged", kServed, kCounter, kServedHelp, "kind", "staged"},
    {"/served/missed", kServed, kCounter, kServedHelp, "kind", "missed"},
    {"/served/direct", kServed, kCounter, kServedHelp, "kind", "direct"},
    {"/served/shared", "quiver_job_shared_items_total", kCounter,
     "Of the staged and the missed items, those that another job's fetch had brought."},
    {"/served/bytes", "quiver_job_served_bytes_total", kCounter,
     "Bytes of the items that the training loop got."},
    {"/served/steps", "quiver_job_steps_total", kCounter, "Batches that the training loop got."},
    {"/served/waited_link_s", kWaited, kCounter, kWaitedHelp, "for", "link"},
    {"/served/waited_decode_s", kWaited, kCounter, kWaitedHelp, "for", "decode"},
    {"/pace/items_per_s", "quiver_job_pace_items_per_second", kGauge,
     "Items a second that the job would take if it never waited for bytes; 0: not known."},
    {"/pace/error", "quiver_job_pace_error_ratio", kGauge,
     "Standard error of the pace, as a part of it."},
    {"/epoch", "quiver_job_epoch", kGauge, "The epoch that the rank is in, from 0."},
    {"/to_take", "quiver_job_epoch_items", kGauge,
     "Items that were the rank's to take when its epoch began."},
    {"/taken", "quiver_job_epoch_taken_items", kGauge, "Of these, those that it has taken."},
    {"/leader", "quiver_job_leads", kGauge,
     "1: what is fetched for the dataset follows this job's order; else 0."}};

class Families {
 public:
  void add(const Figure& figure, const Json& object, Labels labels) {
    const Pointer pointer(figure.pointer);
    if (!object.contains(pointer)) return;  // of a dataset that nobody has opened
    const Json& value = object[pointer];
    if (*figure.label != 0) labels.push_back({figure.label, figure.value});
    add(figure.name, figure.help, figure.type,
        value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : value.get<double>(),
        std::move(labels));
  }
  void add(const char* name, const char* help, MetricType type, double value, Labels labels) {
    if (families_.empty() || families_.back().name != name) start(name, help, type);
    ClientMetric metric;
    metric.label = std::move(labels);
    (type == kCounter ? metric.counter.value : metric.gauge.value) = value;
    families_.back().metric.push_back(std::move(metric));
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  void start(const char* name, const char* help, MetricType type) {
    MetricFamily family;
    family.name = name;
    family.help = help;
    family.type = type;
    families_.push_back(std::move(family));
  }

  std::vector<MetricFamily> families_;
};

}  // namespace

std::string metrics_text(const std::string& text) {
  const Json status = Json::parse(text, nullptr, false);
  if (!status.is_object()) return {};
  Families families;
  families.add("quiver_build_info", "1; its label says which version runs.", kGauge, 1,
               {{"version", status.value("version", "?")}});
  families.add("quiver_degraded",
               "1: the daemon runs, and not as it should (quiver status says why); else 0.", kGauge,
               status.value("state", "ok") == "ok" ? 0 : 1, {});
  for (const Figure& figure : kDaemon) families.add(figure, status, {});
  // Family by family, as the format wants it. `job` is a label that Prometheus itself gives.
  for (const Figure& figure : kDatasets) {
    for (const Json& dataset : status["datasets"]) {
      families.add(figure, dataset, {{"dataset", dataset.value("id", "?")}});
    }
  }
  const auto each_rank = [&](auto visit) {
    for (const Json& dataset : status["datasets"]) {
      for (const Json& rank : dataset["jobs"]) {
        visit(rank, Labels{{"dataset", dataset.value("id", "?")},
                           {"job_number", std::to_string(rank.value("job", 0))},
                           {"rank", std::to_string(rank.value("rank", 0))}});
      }
    }
  };
  each_rank([&](const Json& rank, Labels labels) {
    labels.push_back({"name", rank.value("name", "")});
    labels.push_back({"world", std::to_string(rank.value("world", 1))});
    families.add("quiver_job_info", "1; its labels say what the job calls itself.", kGauge, 1,
                 std::move(labels));
  });
  for (const Figure& figure : kJobs) {
    each_rank(
        [&](const Json& rank, Labels labels) { families.add(figure, rank, std::move(labels)); });
  }
  return families.text();
}

}  // namespace quiver::cache
