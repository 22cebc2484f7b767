// Shares: how the budget divides between the datasets in use, and when that changes. The rule is in
// policy/allocation.h; here is what it is fed with.
//
// A job's rate is what its ranks say on their boards, from steps that did not wait for bytes. What
// a link gives is known from seconds at full load. Neither is probed for: where one is not known
// the dataset has an equal part.
#include <algorithm>

#include "base/text.h"
#include "cache/policy/share_reason.h"
#include "cache/server/control.h"

namespace quiver::cache {

namespace {

// Bytes per second that the job would take if it never waited; 0: no rank of it is known. A rank
// that is not known yet counts as the mean of the others.
double rate_of(const JobEntry& job, double mean_length) {
  double sum = 0;
  std::size_t known = 0;
  for (const auto& [number, rank] : job.ranks) {
    const double rate = rank.pace.items_per_second;
    if (!(rate > 0)) continue;
    sum += rate;
    ++known;
  }
  if (known == 0) return 0;
  const double ranks = static_cast<double>(job.ranks.size());
  return std::min(sum / static_cast<double>(known) * ranks * mean_length, limits::kMostRate);
}

double mean_length(const DatasetState& dataset) {
  return static_cast<double>(dataset.manifest().total_bytes().value) /
         std::max(1.0, static_cast<double>(dataset.size()));
}

}  // namespace

void Control::note_job_rates() {
  for (auto& [root, dataset] : datasets_) {
    for (auto& [token, job] : dataset->jobs) {
      if (const double rate = rate_of(job, mean_length(*dataset)); rate > 0) job.rate = rate;
    }
  }
}

// What was read over each link in the last second, and whether that was all that it gives: it was
// the link that was waited for when the pool is full, of fetches over this link for a good part.
void Control::note_links() {
  const auto pool = static_cast<std::size_t>(context_.settings.fetch_concurrency);
  std::map<std::string, std::size_t> running;
  for (const auto& [hash, flight] : flights_) {
    if (flight.submitted && flight.dataset != nullptr) ++running[flight.dataset->link];
  }
  std::map<std::string, Bytes> read;
  for (auto& [root, dataset] : datasets_) {
    read[dataset->link] += Bytes(dataset->counters.origin_bytes - dataset->link_mark);
    dataset->link_mark = dataset->counters.origin_bytes;
  }
  std::erase_if(links_, [&](const auto& link) { return !read.contains(link.first); });
  for (const auto& [link, bytes] : read) {
    links_[link].second(bytes, in_pool_ >= pool && running[link] * 4 >= pool);
  }
  for (auto& [root, dataset] : datasets_) {
    dataset->link_rate = links_[dataset->link].rate();
    // Items of an epoch by the time that all of its misses take.
    const Bytes missing = dataset->distinct_bytes() - dataset->pinned().bytes;
    dataset->plan().set_link_pace(missing.value == 0 ? 0
                                                     : dataset->size() * dataset->link_rate /
                                                           static_cast<double>(missing.value));
  }
}

// Less what the store needs for itself, and what it sets aside while a segment begins.
Bytes Control::shared_budget() const {
  Bytes reserve = context_.store.stats().staying();
  for (const SegmentInfo& segment : context_.store.segments()) {
    reserve -= std::min(reserve, segment.allocated);
  }
  return limit_ - std::min(reserve + limits::kDiskReserve, limit_ / 4);
}

WindowInputs Control::window_inputs(const DatasetState& dataset, Bytes share, Bytes set_aside,
                                    double link_per_second) const {
  WindowInputs in;
  in.dataset = dataset.distinct_bytes();
  in.share = share;
  in.set_aside = set_aside;
  in.link_per_second = Bytes(static_cast<std::uint64_t>(link_per_second));
  in.drawn_unread = dataset.manifest().longest_item();  // room for two of any at least
  const Bytes mean = dataset.manifest().total_bytes() / std::max(1u, dataset.size());
  for (const auto& [token, job] : dataset.jobs) {
    for (const auto& [rank, entry] : job.ranks) in.step += mean * entry.batch_size;
  }
  const SizeOrShare& fixed = context_.settings.window;
  if (fixed.size) in.fixed = *fixed.size;
  if (fixed.share) {
    in.fixed =
        Bytes(static_cast<std::uint64_t>(*fixed.share * static_cast<double>(in.dataset.value)));
  }
  return in;
}

Window Control::window_of(const DatasetState& dataset, Bytes share, Bytes set_aside,
                          double link_per_second) const {
  return compute_window(window_inputs(dataset, share, set_aside, link_per_second));
}

void Control::warn_of_small_share(DatasetState& dataset, const WindowInputs& in) {
  if (dataset.small_share_told || !too_small_for_steps(in)) return;
  dataset.small_share_told = true;
  log(context_.log, LogLevel::kWarning,
      "dataset {} is slow: its {} of the cache hold fewer than two steps of its jobs, of {} each, "
      "so that they wait for the link at every step; raise disk_limit or lower batch_size",
      dataset.public_id(), format_bytes(in.share), format_bytes(in.step));
}

Control::Standing Control::standing() const {
  Standing out;
  std::map<std::string, std::size_t> links;
  std::map<std::string, double> users;  // datasets in use, of each link
  for (const auto& [root, dataset] : datasets_) {
    if (dataset->unused_since) continue;  // what it has stays until somebody needs the room
    // What it became has the share, and pins the same.
    if (dataset->whole() && datasets_.contains(*dataset->whole())) continue;
    out.datasets.push_back(dataset.get());
    users[dataset->link] += 1;
    if (links.try_emplace(dataset->link, links.size()).second) {
      out.demands.links.push_back(dataset->link_rate);
    }
  }
  out.demands.budget = shared_budget();
  const Bytes equal = out.demands.budget / std::max<std::size_t>(1, out.datasets.size());
  for (std::size_t d = 0; d < out.datasets.size(); ++d) {
    const DatasetState& dataset = *out.datasets[d];
    const ShareRule rule = share_rule_of(context_.settings.shares, dataset.public_id());
    DatasetDemand demand;
    demand.need = dataset.need() + limits::kDiskReserve;
    demand.window = window_of(dataset, std::max(equal, dataset.share()), Bytes(0),
                              dataset.link_rate / users[dataset.link])
                        .window;
    if (rule.limit.value != 0) demand.limit = rule.limit;
    demand.link = links[dataset.link];
    out.demands.datasets.push_back(demand);
    bool known = false;
    for (const auto& [token, job] : dataset.jobs) {
      out.demands.jobs.push_back({d, job.rate, rule.weight});
      known = known || job.rate > 0;
    }
    out.division.push_back(dataset.share());
    out.known.push_back(known && dataset.link_rate > 0);
  }
  return out;
}

// When other datasets are in use or known, or the budget is clearly another, it divides anew at
// once; else only the windows follow: rates that have changed have to prove it first (Adoption).
void Control::reshare() {
  Standing now = standing();
  const Bytes budget = now.demands.budget, was = divided_budget_;
  const bool near = std::max(budget, was) - std::min(budget, was) <= was / limits::kNearBudget;
  if (now.datasets == divided_ && now.known == divided_known_ && near) {
    Division same = trimmed(now.division, budget);
    return divide(now, std::move(same));
  }
  divided_ = now.datasets;
  divided_known_ = now.known;
  divided_budget_ = budget;
  adoption_.reset();
  divide(now, allocate(now.demands));
}

void Control::reconsider_shares(Instant now) {
  note_job_rates();
  Standing standing = this->standing();
  if (standing.known != divided_known_) {
    reshare();
    standing = this->standing();
  } else if (auto found = adoption_.look(standing.demands, standing.division, now)) {
    divide(standing, std::move(*found));
  }
  const Forecast its = forecast(standing.demands, standing.division);
  for (std::size_t d = 0; d < standing.datasets.size(); ++d) {
    standing.datasets[d]->share_reason = share_reason(standing.demands, standing.division, its, d);
  }
  if (now < next_window_) return;
  reshare();
  next_window_ = now + limits::kNewWindow;
}

// Windows that are a little off stay: each move changes what is pinned.
void Control::divide(Standing& standing, Division division) {
  const auto windows = fitted_windows(standing.demands);
  std::map<std::size_t, double> users;
  for (const DatasetDemand& demand : standing.demands.datasets) users[demand.link] += 1;
  for (std::size_t d = 0; d < division.size(); ++d) {
    DatasetState& dataset = *standing.datasets[d];
    const std::size_t link = standing.demands.datasets[d].link;
    const WindowInputs in =
        window_inputs(dataset, division[d], windows[d], standing.demands.links[link] / users[link]);
    const Window window = compute_window(in);
    warn_of_small_share(dataset, in);
    // What the store sets aside comes and goes: a share that follows it would give up a band each
    // time, and read it again.
    const Bytes was = dataset.share();
    const Bytes off = std::max(division[d], was) - std::min(division[d], was);
    const bool near = was.value != 0 && off <= dataset.window() / 16;
    if (near && !worth_changing(dataset.window(), window.window)) {
      division[d] = was;
      continue;
    }
    dataset.set_share(division[d], window, context_.store, holds_);
    needed_.clear();
    rescued_.clear();
    changed_.insert(&dataset);
  }
  standing.division = std::move(division);
}

}  // namespace quiver::cache
