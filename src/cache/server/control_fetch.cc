// One fetch per content at a time: who asks, who waits, and what happens when it has come or
// failed.
#include <algorithm>

#include "base/text.h"
#include "cache/server/control.h"

namespace quiver::cache {

namespace {

FetchResult here() {
  return FetchResult{FetchResult::kHere, 0, {}};
}

FetchResult failed(const Error& error) {
  return FetchResult{FetchResult::kFailed, static_cast<std::uint16_t>(error.code), error.message};
}

// Asking again soon would give the same answer.
bool lasting(Code code) {
  return code == Code::kNotFound || code == Code::kChanged || code == Code::kDenied ||
         code == Code::kExpired || code == Code::kCorrupt || code == Code::kInvalid;
}

bool of_credentials(Code code) {
  return code == Code::kDenied || code == Code::kExpired;
}

constexpr const char* kElsewhere =
    "it could not be read, neither here nor where another job has the same content; the daemon "
    "tried both";

// From where a session reads the dataset.
std::string place_of(const SessionState& session, const DatasetState* dataset) {
  for (const SessionDataset& open : session.datasets) {
    if (open.dataset == dataset) return open.origin->url();
  }
  return {};
}

bool has(const std::vector<std::uint64_t>& words, ItemId id) {
  const std::size_t word = id.value / 64;
  return word < words.size() && (words[word] >> id.value % 64 & 1) != 0;
}

}  // namespace

Status Control::fetch(std::uint64_t session, const FetchRequest& request,
                      std::shared_ptr<FetchWait> wait) {
  DatasetState& dataset = *TRY(dataset_of(session, request.dataset))
  ->dataset;
  for (const std::uint32_t item : request.items) {
    if (item >= dataset.size()) {
      return error(Code::kInvalid, "the dataset has {} items; there is no item {}", dataset.size(),
                   item);
    }
  }
  for (std::size_t i = 0; i < request.items.size(); ++i) {
    want(dataset, ItemId(request.items[i]), Waiter{wait, i, session});
  }
  dispatch();
  return {};
}

const Control::Failure* Control::remembered(const Sha256& hash, const DatasetState& dataset) const {
  const auto found = failures_.find(hash);
  if (found == failures_.end() || found->second.until <= context_.clock.now()) return nullptr;
  if (dataset.manifest().root() != found->second.dataset) return nullptr;
  return &found->second;
}

// Credentials are another matter: those of the next who asks may be better.
void Control::remember(const Sha256& hash, const Flight& flight, const Error& error) {
  if (!lasting(error.code) || of_credentials(error.code) || flight.dataset == nullptr) return;
  if (failures_.size() >= limits::kRememberedFailures) return;
  const auto asked = sessions_.find(flight.asked_by);
  if (asked == sessions_.end()) return;
  failures_[hash] = {flight.dataset->manifest().root(), place_of(asked->second, flight.dataset),
                     error, context_.clock.now() + limits::kRememberFailure};
}

std::optional<Error> Control::too_large(const Item& item) const {
  if (item.length + Bytes(4 * kBandCost) > limit_) {
    return error(Code::kNoSpace,
                 "the item '{}' of {} does not fit into the cache of {}; raise disk_limit",
                 item.key, format_bytes(item.length), format_bytes(limit_));
  }
  if (item.length > context_.settings.memory_limit / 2) {
    return error(Code::kNoSpace,
                 "the item '{}' of {} is too large for a memory_limit of {}, of which a fetch may "
                 "use half; raise memory_limit",
                 item.key, format_bytes(item.length), format_bytes(context_.settings.memory_limit));
  }
  return std::nullopt;
}

void Control::want(DatasetState& dataset, ItemId id, Waiter waiter) {
  const Item item = dataset.item(id);
  const Sha256 hash = dataset.content(id);
  if (dataset.here(id)) return waiter.wait->decide(waiter.index, here());
  if (const auto at = stored(dataset, id)) {
    publish(hash, *at);
    return waiter.wait->decide(waiter.index, here());
  }
  const Failure* const failure = remembered(hash, dataset);
  if (failure != nullptr && failure->place == place_of(sessions_.at(waiter.session), &dataset)) {
    return waiter.wait->decide(waiter.index, failed(failure->error));
  }
  const auto refuse = [&](const Error& error) { waiter.wait->decide(waiter.index, failed(error)); };
  if (const auto error = too_large(item)) return refuse(*error);
  if (!flights_.contains(hash) &&
      queue_.size(FetchQueue::Kind::kDirected) >= limits::kQueuedFetches) {
    return refuse(error(Code::kNoSpace, "the daemon has {} reads queued; ask again later",
                        limits::kQueuedFetches));
  }
  const bool first = !flights_.contains(hash);
  Flight& flight = flight_for(dataset, id);
  if (first) note_asker(flight, dataset, waiter.session);
  flight.waiters.push_back(std::move(waiter));
  flight.guests.emplace_back(&dataset, id);
  if (flight.directed) return;
  flight.directed = true;
  flight.not_before = {};
  if (!flight.submitted) queue_.push_back(entry_of(hash, flight));
}

// The job whose rank the session runs over this dataset; of several, the first.
void Control::note_asker(Flight& flight, const DatasetState& dataset, std::uint64_t session) const {
  for (const auto& [token, job] : dataset.jobs) {
    for (const auto& [number, rank] : job.ranks) {
      if (rank.session != session) continue;
      flight.for_job = job.number;
      flight.strict_rider = rank.epoch.strict && dataset.plan().leader() != job.number;
      return;
    }
  }
}

// In the ledgers of all datasets that have the content; its bytes in that of the one for which it
// was read.
void Control::note_read(const Sha256& hash, const Flight& flight) {
  for (auto& [root, dataset] : datasets_) {
    for (const ItemId id : dataset->entries(hash)) dataset->ledger.brought(id, flight.for_job);
  }
  if (flight.dataset == nullptr) return;
  const ItemId first = flight.dataset->entries(hash).front();
  flight.dataset->ledger.read(first, flight.length, flight.strict_rider);
}

// Where the store has it. What nobody has read is looked up by no name.
std::optional<StoredAt> Control::stored(const DatasetState& dataset, ItemId id) const {
  if (dataset.unread(id)) return std::nullopt;
  return context_.store.find(dataset.content(id));
}

Control::Flight& Control::flight_for(DatasetState& dataset, ItemId id) {
  Flight& flight = flights_[dataset.content(id)];
  if (flight.dataset == nullptr) {
    flight.dataset = &dataset;
    flight.item = id;
    flight.length = dataset.item(id).length;
  }
  return flight;
}

FetchQueue::Entry Control::entry_of(const Sha256& hash, const Flight& flight) {
  FetchQueue::Entry entry;
  entry.hash = hash;
  if (flight.directed) entry.kind = FetchQueue::Kind::kDirected;
  if (flight.dataset == nullptr) return entry;
  entry.dataset = flight.dataset->public_id();
  if (flight.directed && flight.dataset->plan().rides(flight.for_job)) {
    entry.rider = flight.for_job.value;
  }
  return entry;
}

void Control::dispatch() {
  // A little more than there are threads, so that none waits for us between two items.
  const auto most = static_cast<std::uint32_t>(context_.settings.fetch_concurrency) * 5 / 4 + 1;
  while (in_pool_ < most) {
    const auto next = queue_.pop();
    if (!next) return;
    const auto flight = flights_.find(next->hash);
    if (flight == flights_.end() || flight->second.submitted || delayed_.contains(next->hash)) {
      continue;
    }
    const Bytes length = flight->second.length;
    if (in_pool_ != 0 && in_pool_bytes_ + length > fetch_memory()) {
      queue_.push_front(*next);  // until some of what is being fetched has been stored
      return;
    }
    if (submit(next->hash, flight->second)) queue_.charge(*next, length);
  }
}

// A read is made as a session that wants the item; what staging or warming began, at first as any
// that has the dataset open. Credentials are only used while their session lives. `refused`: among
// those whose credentials were lately, or the others.
std::optional<Control::Way> Control::way_for(const Sha256& hash, const Flight& flight,
                                             DatasetState& dataset, bool refused) {
  const auto entries = dataset.entries(hash);
  if (entries.empty()) return std::nullopt;
  const ItemId item = &dataset == flight.dataset ? flight.item : entries.front();
  std::set<std::uint64_t> wanting;
  for (const Waiter& waiter : flight.waiters) wanting.insert(waiter.session);
  for (const auto& [token, job] : dataset.jobs) {
    for (const auto& [number, rank] : job.ranks) {
      if (rank.epoch.active && !has(rank.taken_words, item)) wanting.insert(rank.session);
    }
  }
  const bool for_any =
      &dataset == flight.dataset && (flight.staged || flight.warm) && flight.refused_to.empty();
  const Instant now = context_.clock.now();
  std::optional<Way> other;
  for (auto& [number, session] : sessions_) {
    const bool wants = wanting.contains(number);
    if ((!wants && !for_any) || flight.refused_to.contains(number)) continue;
    for (SessionDataset& open : session.datasets) {
      if (open.dataset != &dataset || (open.refused_until > now) != refused) continue;
      if (wants) return Way{number, &open, item};
      other = Way{number, &open, item};
    }
  }
  return other;
}

// That of its own dataset, else that of another one with the same content.
std::optional<Control::Way> Control::any_way_for(const Sha256& hash, const Flight& flight,
                                                 bool refused) {
  if (flight.dataset == nullptr) return std::nullopt;
  if (auto own = way_for(hash, flight, *flight.dataset, refused)) return own;
  for (auto& [root, dataset] : datasets_) {
    if (dataset.get() == flight.dataset) continue;
    if (auto other = way_for(hash, flight, *dataset, refused)) return other;
  }
  return std::nullopt;
}

// What the session's credentials may not read others' may; what is not at its place any more is
// there for nobody who looks at the same place.
void Control::note_refusal(Flight& flight, Code code) {
  flight.refused_to.insert(flight.asked_by);
  const auto asked = sessions_.find(flight.asked_by);
  if (asked == sessions_.end()) return;
  for (SessionDataset& its : asked->second.datasets) {
    if (its.dataset != flight.dataset) continue;
    if (of_credentials(code)) its.refused_until = context_.clock.now() + limits::kRememberFailure;
    for (const auto& [number, session] : sessions_) {
      const bool same = std::ranges::any_of(session.datasets, [&](const SessionDataset& open) {
        return open.manifest == its.manifest && open.origin->url() == its.origin->url();
      });
      if (same && !of_credentials(code)) flight.refused_to.insert(number);
    }
  }
}

Status Control::renew(std::uint64_t number, const RenewRequest& request) {
  SessionDataset& open = *TRY(dataset_of(number, request.dataset));
  open.credentials->renew(request.credentials);
  open.refused_until = {};
  DatasetState& dataset = *open.dataset;
  dataset.pause = {};
  dataset.paused_until = {};
  for (auto& [hash, flight] : flights_) {
    flight.refused_to.erase(number);
    if (flight.dataset != &dataset) continue;
    flight.not_before = {};
    flight.attempts = 0;
  }
  return {};
}

bool Control::submit(const Sha256& hash, Flight& flight) {
  auto way = any_way_for(hash, flight, false);
  if (!way) way = any_way_for(hash, flight, true);
  if (!way) {
    fail(flights_.find(hash),
         error(Code::kUnavailable, "no session that wants the item is there any more"));
    return false;
  }
  flight.asked_by = way->session;
  flight.dataset = way->open->dataset;
  flight.item = way->item;
  const SessionDataset* const source = way->open;
  const Item item = source->manifest->item(flight.item);
  const ObjectRef object = source->manifest->object(item.object);
  FetchTask task;
  task.hash = hash;
  task.content = flight.dataset->content(flight.item);
  task.length = item.length;
  task.request.key = std::string(object.key);
  task.request.offset = item.offset;
  task.request.expected = {object.size, std::string(object.etag), object.mtime_ns};
  task.origin = source->origin;
  task.lane = flight.dataset->lane(hash);
  task.segment_limit = flight.dataset->segment_limit(task.lane.pinned);
  if (flight.dataset->unread(flight.item)) task.unread = flight.dataset->pin_rule();
  flight.submitted = true;
  ++in_pool_;
  in_pool_bytes_ += flight.length;
  context_.pool.submit(std::move(task));
  return true;
}

void Control::read_as(const Sha256& name, const Sha256& content) {
  for (auto& [root, dataset] : datasets_) dataset->read_as(name, content);
}

void Control::fetched(const Fetched& fetched, const Result<StoredAt>& result) {
  const Sha256& hash = fetched.asked;
  --in_pool_;
  in_pool_bytes_ -= fetched.length;
  const auto found = flights_.find(hash);
  if (found == flights_.end()) return;
  Flight& flight = found->second;
  flight.submitted = false;
  if (flight.dataset != nullptr) {
    ++flight.dataset->counters.origin_reads;
    if (result) flight.dataset->counters.origin_bytes += flight.length.value;
  }
  if (result) note_read(fetched.content, flight);
  if (!result && fetched.disk) return not_stored(found, result.error());
  if (!result) return fail(found, result.error());
  failures_.erase(hash);
  if (flight.dataset != nullptr) flight.dataset->pause = {};
  const auto at = context_.store.find(fetched.content);
  if (!at) {  // evicted before we heard of it
    return fail(found, error(Code::kNoSpace, "the cache is too full to keep what was fetched"));
  }
  const Flight done = std::move(flight);
  flights_.erase(found);
  publish(fetched.content, *at);
  rescued_.erase(at->segment);  // the share may have grown since it was submitted
  for (const auto& [dataset, id] : done.guests) {
    dataset->plan().guest(id);
    if (dataset->plan().holds(id)) dataset->hold(id, holds_);
  }
  for (const Waiter& waiter : done.waiters) waiter.wait->decide(waiter.index, here());
}

// The origin gave it, and the cache's disk did not take it.
void Control::not_stored(Flights::iterator found, const Error& error) {
  const Instant now = context_.clock.now();
  const bool transient = error.code == Code::kNoSpace || error.code == Code::kCancelled;
  // Somebody asked for it after it was given up, or it was written into a directory that was being
  // removed.
  const bool asked = error.code == Code::kCancelled && found->second.directed;
  if (asked ||
      (!transient && (check_directory(now) || now - recreated_ < std::chrono::seconds(1)))) {
    queue_.push_front(entry_of(found->first, found->second));
    return;
  }
  disk_trouble(error);
  fail(found, transient ? error : Error{Code::kIo, error.message});
}

void Control::publish(const Sha256& hash, const StoredAt& at) {
  for (auto& [root, dataset] : datasets_) {
    if (dataset->entries(hash).empty()) continue;
    dataset->publish(hash, at, context_.store, holds_);
    dataset->warm.on_the_way.erase(hash);
    changed_.insert(dataset.get());
  }
}

// An error names a place, which is told only to those who know it.
void Control::answer(Flight& flight, const Error& error) {
  const auto asked = sessions_.find(flight.asked_by);
  for (const Waiter& waiter : flight.waiters) {
    const auto its = sessions_.find(waiter.session);
    const bool knows =
        asked == sessions_.end() || its == sessions_.end() ||
        place_of(its->second, flight.dataset) == place_of(asked->second, flight.dataset);
    waiter.wait->decide(waiter.index, failed(knows ? error : Error{error.code, kElsewhere}));
  }
  flight.waiters.clear();
  flight.guests.clear();
  flight.directed = false;
}

// Those who wait hear of it now; what staging wants is tried again where that can help.
void Control::fail(Flights::iterator found, const Error& error) {
  const Sha256 hash = found->first;
  Flight& flight = found->second;
  if (flight.dataset != nullptr) {
    ++flight.dataset->counters.origin_errors;
    log(context_.log, LogLevel::kDebug, "dataset {}: {}", flight.dataset->public_id(),
        error.message);
  }
  if (retry(hash, flight, error)) return;
  remember(hash, flight, error);
  answer(flight, error);
  for (auto& [root, dataset] : datasets_) {
    for (const ItemId id : dataset->entries(hash)) dataset->plan().failed(id);
    if (dataset->warm.on_the_way.erase(hash) == 0) continue;
    dataset->warm.failed += dataset->entries(hash).size();
    if (dataset->warm.first_error.empty()) dataset->warm.first_error = error.message;
  }
  flights_.erase(hash);
}

// True when the item is to be tried again.
bool Control::retry(const Sha256& hash, Flight& flight, const Error& error) {
  if (flight.dataset == nullptr || error.code == Code::kCancelled) return false;
  const Instant now = context_.clock.now();
  // Another session may have better credentials, or a sound copy: those who wait need not hear of
  // this.
  if (lasting(error.code)) {
    note_refusal(flight, error.code);
    if (any_way_for(hash, flight, false)) {
      queue_.push_back(entry_of(hash, flight));
      return true;
    }
    flight.refused_to.clear();
  }
  const bool may_pass = !lasting(error.code) || of_credentials(error.code);
  if (!flight.staged || !may_pass || ++flight.attempts >= limits::kStagingAttempts) return false;
  answer(flight, error);
  DatasetState& dataset = *flight.dataset;
  dataset.pause =
      std::clamp(dataset.pause * 2, Duration(limits::kRetryLeast), Duration(limits::kRetryMost));
  dataset.paused_until = now + dataset.pause;
  flight.not_before = dataset.paused_until;
  delayed_.insert(hash);
  return true;
}

void Control::wake_delayed(Instant now) {
  for (auto it = delayed_.begin(); it != delayed_.end();) {
    const auto flight = flights_.find(*it);
    if (flight != flights_.end() && flight->second.not_before > now) {
      ++it;
      continue;
    }
    if (flight != flights_.end()) queue_.push_front(entry_of(*it, flight->second));
    it = delayed_.erase(it);
  }
}

// Where somebody keeps it, if anybody does.
Lane Control::lane_for_insert(const Sha256& hash) const {
  std::optional<Lane> lane;
  for (const auto& [root, dataset] : datasets_) {
    if (dataset->entries(hash).empty() || (lane && dataset->unused_since)) continue;
    if (!lane || !lane->pinned) lane = dataset->lane(hash);
  }
  return lane.value_or(Lane{"incoming", true, hash.bytes[0]});
}

void Control::lost(const Sha256& hash) {
  ++relocations_;
  for (auto& [root, dataset] : datasets_) {
    if (dataset->withdraw(hash, std::nullopt, holds_) != 0) changed_.insert(dataset.get());
  }
}

void Control::inserted(const Sha256& hash) {
  if (const auto at = context_.store.find(hash)) publish(hash, *at);
}

}  // namespace quiver::cache
