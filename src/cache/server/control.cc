#include "cache/server/control.h"

#include <algorithm>

#include "base/text.h"
#include "cache/view/job_board.h"

namespace quiver::cache {

Control::Control(const ControlContext& context)
    : context_(context),
      idle_since_(context.clock.now()),
      started_(context.clock.now()),
      limit_(context.disk_limit),
      writable_(context.disk_limit) {}

Duration Control::turn() {
  const Instant now = context_.clock.now();
  if (now >= next_beat_) beat(now);
  if (now >= next_second_) each_second(now);
  wake_delayed(now);
  bool more = false;
  Instant next = std::min(next_beat_, next_second_);
  for (auto& [root, dataset] : datasets_) {
    if (dataset->rescan < dataset->size()) {
      rescan_some(*dataset);
      more = true;
    }
    if (!dataset->jobs.empty() && now >= dataset->next_look) look_at_boards(*dataset, now);
    order_more(*dataset, now);
    more = more || dataset->plan().more();
    if (!dataset->jobs.empty()) next = std::min(next, dataset->next_look);
  }
  dispatch();
  evict_done(now);
  if (context_.store.stats().staying() > limit_) more = shrink(now) || more;
  for (DatasetState* dataset : changed_) dataset->view().notify();
  changed_.clear();
  return more ? Duration(0) : std::max(Duration(0), next - context_.clock.now());
}

void Control::beat(Instant now) {
  for (auto& [root, dataset] : datasets_) {
    dataset->view().beat(now);
    dataset->view().set_counters(dataset->counters);
  }
  next_beat_ = now + limits::kHeartbeat;
}

void Control::each_second(Instant now) {
  next_second_ = now + std::chrono::seconds(1);
  check_directory(now);
  watch_disk(now);
  note_links();
  std::erase_if(failures_, [now](const auto& entry) { return entry.second.until <= now; });
  drop_unused(now);
  note_rates(now);
  reconsider_shares(now);
}

void Control::drop_unused(Instant now) {
  std::vector<Sha256> unused;
  for (const auto& [root, dataset] : datasets_) {
    const auto since = dataset->unused_since;
    if (since && now - *since >= limits::kKeepUnused) unused.push_back(root);
  }
  for (const Sha256& root : unused) drop_dataset(root);
}

void Control::drop_dataset(const Sha256& root) {
  const auto found = datasets_.find(root);
  DatasetState* const dataset = found->second.get();
  dataset->let_all_go(holds_);
  changed_.erase(dataset);
  for (auto& [hash, flight] : flights_) {
    std::erase_if(flight.guests, [&](const auto& guest) { return guest.first == dataset; });
    if (flight.dataset == dataset) flight.dataset = nullptr;
  }
  needed_.clear();
  datasets_.erase(found);
}

std::uint64_t Control::open_session(const Token& token) {
  sessions_[++last_session_].token = token;
  return last_session_;
}

Result<std::uint64_t> Control::find_session(const Token& token) const {
  for (const auto& [number, session] : sessions_) {
    if (session.token == token) return number;
  }
  return error(Code::kNotFound, "the session has ended; open another one");
}

bool Control::in_use(const DatasetState& dataset) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    const auto& open = entry.second.datasets;
    return std::any_of(open.begin(), open.end(),
                       [&](const SessionDataset& d) { return d.dataset == &dataset; });
  });
}

void Control::close_session(std::uint64_t number) {
  if (const auto session = sessions_.find(number); session != sessions_.end()) {
    for (const SessionDataset& open : session->second.datasets) {
      open.dataset->requests += open.origin->stats();
    }
    sessions_.erase(session);
  }
  needed_.clear();
  const Instant now = context_.clock.now();
  for (auto& [root, dataset] : datasets_) {
    leave_jobs(*dataset, number);
    if (!dataset->unused_since && !in_use(*dataset)) dataset->unused_since = now;
  }
  if (sessions_.empty()) idle_since_ = now;
  reshare();
}

void Control::leave_jobs(DatasetState& dataset, std::uint64_t session, const LeaveRequest* one) {
  for (auto job = dataset.jobs.begin(); job != dataset.jobs.end();) {
    for (auto rank = job->second.ranks.begin(); rank != job->second.ranks.end();) {
      const bool named = one == nullptr || (one->job == job->first && one->rank == rank->first);
      if (rank->second.session != session || !named) {
        ++rank;
        continue;
      }
      dataset.plan().remove(job->second.number, rank->first);
      rank = job->second.ranks.erase(rank);
    }
    job = job->second.ranks.empty() ? dataset.jobs.erase(job) : std::next(job);
  }
  release(dataset);
}

bool Control::idle(Duration timeout) const {
  return sessions_.empty() && context_.clock.now() - idle_since_ >= timeout;
}

std::shared_ptr<const Manifest> Control::manifest_of(const Sha256& root) const {
  const auto found = datasets_.find(root);
  return found == datasets_.end() ? nullptr : found->second->shared_manifest();
}

Bytes Control::memory() const {
  Bytes sum = in_pool_bytes_ + limits::kMemoryPerItem * context_.store.stats().items;
  for (const auto& [root, dataset] : datasets_) {
    sum += dataset->memory();
    for (const auto& [token, job] : dataset->jobs) {
      sum += rank_memory(*dataset) * job.ranks.size();
    }
  }
  return sum;
}

// Its board, what was read of that, and what the plan keeps of it.
Bytes Control::rank_memory(const DatasetState& dataset) {
  return job_board_memory(dataset.size()) * 2;
}

Status Control::room_in_memory(Bytes cost) {
  const Bytes limit = context_.settings.memory_limit;
  if (memory() + cost > limit) drop_unused(context_.clock.now() + limits::kKeepUnused);
  if (memory() + cost <= limit) return {};
  return error(Code::kNoSpace,
               "the dataset needs {} of the daemon's memory, of which {} are in use and "
               "memory_limit allows {}; raise memory_limit",
               format_bytes(cost), format_bytes(memory()), format_bytes(limit));
}

Result<Control::Opened> Control::open_dataset(std::uint64_t number,
                                              std::unique_ptr<DatasetState> built,
                                              SessionDataset way, std::uint64_t relocations) {
  const auto session = sessions_.find(number);
  if (session == sessions_.end()) return error(Code::kUnavailable, "the session has ended");
  if (session->second.datasets.size() == limits::kDatasetsPerSession) {
    return error(Code::kNoSpace, "a session can open {} datasets; use another one",
                 limits::kDatasetsPerSession);
  }
  const Sha256 root = way.manifest->root();
  if (!datasets_.contains(root)) {
    // Between the look and now it was dropped: rare, and the client asks again.
    if (!built) return error(Code::kUnavailable, "the dataset was just closed; open it again");
    if (Status room = room_in_memory(built->memory()); !room) return std::move(room).error();
    built->settle(context_.store);
    if (relocations != relocations_) built->rescan = 0;
    built->view().beat(context_.clock.now());
    datasets_[root] = std::move(built);
  }
  DatasetState& dataset = *datasets_[root];
  dataset.unused_since.reset();
  dataset.last_used = ++uses_;
  dataset.link = link_of(way.origin->url());
  way.dataset = &dataset;
  session->second.datasets.push_back(std::move(way));
  reshare();
  return Opened{static_cast<std::uint32_t>(session->second.datasets.size() - 1), dataset.size(),
                dataset.public_id(), dataset.view().readers_fd()};
}

Result<SessionDataset*> Control::dataset_of(std::uint64_t number, std::uint32_t handle) {
  const auto session = sessions_.find(number);
  if (session == sessions_.end()) return error(Code::kUnavailable, "the session has ended");
  if (handle >= session->second.datasets.size()) {
    return error(Code::kInvalid, "the session has no dataset {}", handle);
  }
  return &session->second.datasets[handle];
}

Status Control::join(std::uint64_t number, const JoinRequest& request, io::Fd board) {
  DatasetState& dataset = *TRY(dataset_of(number, request.dataset))
  ->dataset;
  if (request.world == 0 || request.rank >= request.world) {
    return error(Code::kInvalid, "rank {} of a job of {} ranks does not exist", request.rank,
                 request.world);
  }
  if (memory() + rank_memory(dataset) > context_.settings.memory_limit) {
    return error(Code::kNoSpace, "the job's bitmaps of {} do not fit into memory_limit ({})",
                 format_bytes(rank_memory(dataset)), format_bytes(context_.settings.memory_limit));
  }
  const LeaveRequest again{request.dataset, request.job, request.rank};
  leave_jobs(dataset, number, &again);  // whose leave was lost
  const auto known = dataset.jobs.find(request.job);
  if (known == dataset.jobs.end() && dataset.jobs.size() == StagingPlan::kMaxJobs) {
    const Error refusal = error(
        Code::kNoSpace,
        "a daemon stages for at most {} jobs over one dataset: one more reads what it asks for, as "
        "slowly as that comes; run fewer jobs, or give some a cache_dir of their own",
        StagingPlan::kMaxJobs);
    log(context_.log, LogLevel::kWarning, "dataset {}: {}", dataset.public_id(), refusal.message);
    return refusal;
  }
  if (known != dataset.jobs.end() && known->second.ranks.contains(request.rank)) {
    return error(Code::kInvalid, "rank {} of this job is there already, in another process",
                 request.rank);
  }
  JobEntry& job = dataset.jobs[request.job];
  if (job.number.value == 0) job.number = JobId{++last_job_};
  job.name = request.name.substr(0, 200);
  job.world = request.world;
  RankEntry& rank = job.ranks[request.rank];
  rank.session = number;
  rank.board = std::move(board);
  rank.batch_size = request.batch_size;
  dataset.next_look = context_.clock.now();
  reshare();  // twenty steps of one more rank
  return {};
}

// What is not there, or is another session's, has left as far as this one is concerned.
void Control::leave(std::uint64_t number, const LeaveRequest& request) {
  const auto open = dataset_of(number, request.dataset);
  if (!open) return;
  leave_jobs(*(*open)->dataset, number, &request);
  reshare();
}

Status Control::report(std::uint64_t number, const ReportRequest& request) {
  DatasetState& dataset = *TRY(dataset_of(number, request.dataset))
  ->dataset;
  const auto job = dataset.jobs.find(request.job);
  if (job == dataset.jobs.end() || !job->second.ranks.contains(request.rank)) {
    return error(Code::kNotFound, "there is no rank {} of this job", request.rank);
  }
  job->second.ranks[request.rank].report = request;
  dataset.next_look = context_.clock.now();
  return {};
}

}  // namespace quiver::cache
