#include "cache/client/dataset.h"

#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "cache/client/digest_lazy.h"
#include "cache/client/direct_reader.h"
#include "cache/client/session.h"
#include "cache/client/shared_memory.h"
#include "io/process.h"

namespace quiver::cache {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(250);
constexpr Duration kLongestWait =
    std::chrono::minutes(5);  // for one item, whatever the daemon says
constexpr Duration kFirstStart = std::chrono::seconds(10);
constexpr Duration kRestart = std::chrono::seconds(3);
constexpr Duration kLongestPause = std::chrono::seconds(5);  // between two attempts
constexpr Duration kRemembered = std::chrono::minutes(1);    // that the daemon refused an item
constexpr Duration kRetryEvery = std::chrono::seconds(1);
constexpr int kMostDisagreements = 4;  // "here" says the daemon, and it cannot be read

struct Counters {
  std::array<std::atomic<std::uint64_t>, kTiers> items{}, bytes{};
  std::atomic<std::uint64_t> stale = 0, corrupt = 0;
};

struct Attempts {
  bool under_way = false;
  bool made = false;  // the first one; it is waited for
  Instant next{};
};

// What belongs to one process and must not be shared by a fork. A child abandons its parent's and
// makes its own: locks may be held in the parent's by threads that the child does not have.
struct ProcessState {
  ProcessState(const DatasetOptions& options, Environment e, bool forked)
      : own_http(forked ? io::make_curl_transport(options.settings.fetch_concurrency) : nullptr),
        environment{e.files, own_http ? *own_http : e.http, e.clock, e.log},
        credentials(forked ? std::make_shared<RenewableCredentials>(options.credentials->now().keys)
                           : options.credentials),
        direct(options.origin,
               OriginContext{environment.files,
                             environment.http,
                             environment.clock,
                             seed(),
                             {},
                             nullptr,
                             credentials},
               options.settings.fetch_concurrency) {}

  static std::uint64_t seed() {
    std::uint64_t value = 0;  // of retry jitter: any value will do when the kernel has none
    (void)io::random_bytes(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  ForkMark mark;
  std::unique_ptr<io::HttpTransport> own_http;  // a fork must not use its parent's connections
  Environment environment;
  const std::shared_ptr<RenewableCredentials> credentials;
  DirectReader direct;
  Guarded<std::shared_ptr<Session>> session;
  Guarded<Attempts> attempts;
  std::atomic<std::uint64_t> generation = 0;
  std::atomic<bool> degraded = false, warned = false;
  std::atomic<bool> refused = false;  // by this daemon, and said so
  std::atomic<Instant> refused_at{Instant::min()};
  std::atomic<Session*> to_abandon = nullptr;  // the newest session, for a fork's child
  std::atomic<int> greeting = -1;              // the connection that is to become one, likewise
  Counters counters;
};

class DatasetImpl final : public Dataset {
 public:
  DatasetImpl(DatasetOptions options, Environment environment,
              std::shared_ptr<const Manifest> manifest)
      : options_(std::move(options)), environment_(environment), manifest_(std::move(manifest)) {
    if (options_.origin.url.empty()) options_.origin.url = std::string(manifest_->origin_url());
    if (!options_.credentials) {
      options_.credentials = std::make_shared<RenewableCredentials>(options_.origin.credentials());
    }
    state_ = new ProcessState(options_, environment_, false);
    if (const std::string warning = trust_warning(options_.origin); !warning.empty()) {
      log(environment_.log, LogLevel::kWarning, "{}", warning);
    }
  }

  ~DatasetImpl() override {
    ProcessState* state = state_.load();
    if (state->mark.in_maker()) delete state;  // else it is the parent's, left alone for ever
  }

  const Manifest& manifest() const override { return *manifest_; }

  Result<Tier> read(ItemId id, MutableByteSpan out, std::stop_token stop) override {
    CHECK(out.size() == manifest_->item(id).length.value);
    if (out.empty()) return Tier::kPinned;
    ProcessState& state = process();
    const auto session = ensure_session(state);
    if (!session) return read_direct(state, id, out, stop);
    const Look look = read_here(state, *session, id, out);
    if (look.hit == Hit::kHit) return count(state, look.tier(), out);
    return read_missing(state, *session, look, id, out, stop);
  }

  bool read_resident(ItemId id, MutableByteSpan out, Tier& tier) override {
    CHECK(out.size() == manifest_->item(id).length.value);
    tier = Tier::kPinned;
    if (out.empty()) return true;
    ProcessState& state = process();
    const auto session = ensure_session(state);
    if (!session) return false;
    const Look look = read_here(state, *session, id, out);
    if (look.hit != Hit::kHit) return false;
    tier = count(state, look.tier(), out);
    return true;
  }

  std::shared_ptr<const ViewReader> view() override {
    auto session = ensure_session(process());
    if (session && !session->alive()) session = ensure_session(process());
    if (!session) return nullptr;
    return {session, &session->view()};
  }

  void want(const std::vector<ItemId>& items) override {
    if (items.empty()) return;
    if (const auto session = ensure_session(process())) {
      // Whether they come is learned when they are read.
      (void)session->fetch(items, std::chrono::milliseconds(0));
    }
  }

  Result<std::shared_ptr<JobBoardWriter>> join(const Token16& job, std::uint32_t world,
                                               std::uint32_t rank, std::uint32_t batch_size,
                                               Duration patience) override {
    const auto session = ensure_session(process());
    if (!session) return error(Code::kUnavailable, "there is no daemon to join");
    return session->join({0, job, options_.name, world, rank, batch_size}, patience);
  }

  std::uint64_t generation() const override {
    return const_cast<DatasetImpl*>(this)->process().generation;
  }

  void report(ReportRequest request) override {
    if (const auto session = ensure_session(process())) (void)session->report(std::move(request));
  }

  bool insert(const Sha256& hash, ByteSpan bytes) override {
    const auto session = ensure_session(process());
    if (!session) return false;
    const auto reply = session->insert(hash, bytes);
    return reply && reply->kept;
  }

  void credentials_renewed() override {
    ProcessState& state = process();
    auto session = state.session.with([](const auto& s) { return s; });
    if (session && !session->lost()) hand_over(state, *session);
  }

  Result<bool> complete() override;

  ReadStats stats() const override {
    const ProcessState& state = const_cast<DatasetImpl*>(this)->process();
    ReadStats s;
    for (int t = 0; t < kTiers; ++t) {
      const auto i = static_cast<std::size_t>(t);
      s.items[i] = state.counters.items[i];
      s.bytes[i] = state.counters.bytes[i];
    }
    s.stale = state.counters.stale;
    s.corrupt = state.counters.corrupt;
    s.direct_origin_bytes = state.direct.body_bytes();
    return s;
  }

  bool degraded() const override {
    const ProcessState& state = const_cast<DatasetImpl*>(this)->process();
    const Instant refused_at = state.refused_at;
    return state.degraded || (refused_at != Instant::min() &&
                              state.environment.clock.now() - refused_at < kRemembered);
  }

 private:
  // This process's state. The first caller after a fork makes it, without touching what is locked.
  ProcessState& process() {
    ProcessState* state = state_.load(std::memory_order_acquire);
    if (state->mark.in_maker()) [[likely]]
      return *state;
    auto mine = std::make_unique<ProcessState>(options_, environment_, true);
    ProcessState* const parents = state;
    if (!state_.compare_exchange_strong(state, mine.get()))
      return *state;  // another thread was first
    abandon(*parents);
    return *mine.release();
  }

  // The child's copies of the parent's connections go, so that the daemon sees the parent end.
  static void abandon(ProcessState& parents) {
    const int greeting = parents.greeting.load();
    Session* const session = parents.to_abandon.load();
    const bool of_session = session != nullptr && session->holds(greeting);
    if (greeting >= 0 && !of_session) io::Fd(greeting).reset();
    if (session != nullptr) session->abandon_after_fork();
  }

  struct Look {
    Hit hit = Hit::kAbsent;
    ViewWord word;
    Tier tier() const { return word.pinned() ? Tier::kPinned : Tier::kStaged; }
  };
  static Look read_here(ProcessState& state, Session& session, ItemId id, MutableByteSpan out) {
    Look look;
    look.hit = session.read_resident(id, out, look.word);
    if (look.hit == Hit::kStale) ++state.counters.stale;
    if (look.hit == Hit::kCorrupt) ++state.counters.corrupt;
    return look;
  }

  static Tier count(ProcessState& state, Tier tier, ByteSpan out) {
    const auto t = static_cast<std::size_t>(tier);
    state.counters.items[t].fetch_add(1, std::memory_order_relaxed);
    state.counters.bytes[t].fetch_add(out.size(), std::memory_order_relaxed);
    return tier;
  }

  Result<Tier> read_direct(ProcessState& state, ItemId id, MutableByteSpan out,
                           std::stop_token stop) {
    if (auto read = state.direct.read(current(), id, out, stop); !read)
      return std::move(read).error();
    return count(state, Tier::kDirect, out);
  }

  Result<Tier> read_missing(ProcessState& state, Session& session, Look look, ItemId id,
                            MutableByteSpan out, std::stop_token stop);
  std::optional<Error> ask(Session& session, const Look& look, ItemId id, int& disagreements);
  static void hand_over(ProcessState& state, Session& session);
  static bool renewed(ProcessState& state, Session& session, std::uint64_t version,
                      std::stop_token stop);
  std::shared_ptr<Session> ensure_session(ProcessState& state);
  std::shared_ptr<Session> connect(ProcessState& state, Duration patience);
  Result<std::shared_ptr<Session>> try_connect(ProcessState& state, Duration patience);
  void fell_back(ProcessState& state, const Error& reason);
  void refused(ProcessState& state, const Error& reason);

  DatasetOptions options_;
  const Environment environment_;
  // With the hashes that are known now: the one that it was opened with, or what that became.
  const Manifest& current() const {
    const Manifest* const whole = whole_.load(std::memory_order_acquire);
    return whole != nullptr ? *whole : *manifest_;
  }

  const std::shared_ptr<const Manifest> manifest_;
  std::mutex completing_;
  std::shared_ptr<const Manifest> completed_;     // set once, before whole_
  std::atomic<const Manifest*> whole_ = nullptr;  // no lock: a fork may come at any time
  std::atomic<ProcessState*> state_;
};

// Has the daemon bring the item, for a moment; the error is its own: it will not come.
std::optional<Error> DatasetImpl::ask(Session& session, const Look& look, ItemId id,
                                      int& disagreements) {
  const Item item = manifest_->item(id);
  // The daemon looks at its copy itself, drops it and fetches another.
  if (look.hit == Hit::kCorrupt &&
      (++disagreements > kMostDisagreements || !session.damaged(id, look.word, item.length))) {
    return error(Code::kCorrupt, "the bytes of '{}' are damaged in the cache", item.key);
  }
  const auto reply = session.fetch({id}, kSlice);
  if (!reply) {
    if (reply.error().code == Code::kTimeout) return std::nullopt;  // slow, if its heart beats
    return reply.error();
  }
  const FetchResult& result = reply->results[0];
  if (result.state == FetchResult::kFailed) {
    const bool expired = result.code == static_cast<std::uint16_t>(Code::kExpired);
    return Error{expired ? Code::kExpired : Code::kIo, result.message};
  }
  if (result.state == FetchResult::kHere && ++disagreements > kMostDisagreements) {
    return error(Code::kIo, "'{}' is in the cache, and this process cannot read it there",
                 item.key);
  }
  return std::nullopt;
}

// The daemon has the newest credentials from now on, if it hears of them.
void DatasetImpl::hand_over(ProcessState& state, Session& session) {
  const RenewableCredentials::Now& newest = state.credentials->now();
  if (session.credentials_version() < newest.version) (void)session.renew(newest);
}

// Those of `version` have expired. True: the daemon has newer ones, so that it is worth asking.
bool DatasetImpl::renewed(ProcessState& state, Session& session, std::uint64_t version,
                          std::stop_token stop) {
  if (!state.credentials->newer_than(version, std::move(stop))) return false;
  hand_over(state, session);
  return session.credentials_version() > version;
}

// Waits while the daemon lives and fetches; reads the origin when it does not, or cannot.
Result<Tier> DatasetImpl::read_missing(ProcessState& state, Session& session, Look look, ItemId id,
                                       MutableByteSpan out, std::stop_token stop) {
  const Instant give_up = state.environment.clock.now() + kLongestWait;
  int disagreements = 0;
  std::optional<Error> why;
  while (!why && session.alive()) {
    if (stop.stop_requested()) return error(Code::kCancelled, "the read was given up");
    const std::uint64_t version = session.credentials_version();
    why = ask(session, look, id, disagreements);
    if (why && why->code == Code::kExpired && renewed(state, session, version, stop)) why.reset();
    if (why) break;
    look = read_here(state, session, id, out);
    if (look.hit == Hit::kHit) return count(state, Tier::kFetched, out);
    if (state.environment.clock.now() >= give_up) why = error(Code::kTimeout, "it did not come");
  }
  if (session.lost()) {
    fell_back(state, error(Code::kUnavailable, "the daemon has gone or stands still"));
  }
  const Tier tier = TRY(read_direct(state, id, out, stop));
  if (why && !session.lost()) refused(state, *why);
  return tier;
}

std::shared_ptr<Session> DatasetImpl::ensure_session(ProcessState& state) {
  if (!options_.settings.enabled) return nullptr;
  auto session = state.session.with([](const auto& s) { return s; });
  if (session && !session->lost()) [[likely]]
    return session;

  bool first = false;
  const bool mine = state.attempts.with([&](Attempts& a) {
    if (a.under_way || state.environment.clock.now() < a.next) return false;
    first = !a.made;
    a.under_way = true;
    return true;
  });
  if (mine) return connect(state, first ? kFirstStart : kRestart);
  // The first attempt is worth waiting for; later ones leave the others to read the origin.
  state.attempts.wait_for(
      std::stop_token{}, kFirstStart, [](const Attempts& a) { return a.made || !a.under_way; },
      [](Attempts&) {});
  session = state.session.with([](const auto& s) { return s; });
  return session && !session->lost() ? session : nullptr;
}

std::shared_ptr<Session> DatasetImpl::connect(ProcessState& state, Duration patience) {
  const Instant began = state.environment.clock.now();
  auto session = try_connect(state, patience);
  std::shared_ptr<Session> old;  // ends outside the lock
  if (session) {
    state.to_abandon = session->get();
    state.greeting = -1;
    old = state.session.with([&](auto& s) { return std::exchange(s, *session); });
    ++state.generation;
    if (state.degraded.exchange(false)) {
      log(state.environment.log, LogLevel::kInfo, "reading through the daemon again");
    }
    state.warned = false;
    state.refused = false;
    hand_over(state, **session);  // if they were renewed while it was being opened
  } else {
    fell_back(state, session.error());
  }
  state.attempts.change([&](Attempts& a) {
    const Instant now = state.environment.clock.now();
    a.made = true;
    a.under_way = false;
    // An attempt that took long keeps its thread from reading: the longer, the rarer. Processes
    // that failed together come again one by one.
    const Duration pause = std::clamp<Duration>(4 * (now - began), kRetryEvery, kLongestPause);
    const Duration jitter = pause * static_cast<std::int64_t>(ProcessState::seed() % 256) / 512;
    a.next = session ? began : now + pause + jitter;
  });
  return session ? *session : nullptr;
}

Result<std::shared_ptr<Session>> DatasetImpl::try_connect(ProcessState& state, Duration patience) {
  const Instant deadline = state.environment.clock.now() + patience;
  const DaemonAddress address =
      TRY(daemon_address(options_.settings, state.environment.files, io::environment));
  Greeted greeted = TRY(greet_or_start_daemon(address, options_.daemon_program, options_.settings,
                                              state.environment, deadline, &state.greeting));
  const RenewableCredentials::Now& with = state.credentials->now();
  OriginSettings origin = options_.origin;
  origin.set_credentials(with.keys);
  auto session =
      Session::open(std::move(greeted), address, current(), std::move(origin), state.environment);
  if (!session) state.greeting = -1;
  if (session) (*session)->set_credentials_version(with.version);
  return session;
}

Result<bool> DatasetImpl::complete() {
  const std::lock_guard one_at_a_time(completing_);
  if (!current().provisional()) return false;
  ProcessState& state = process();
  const auto session = ensure_session(state);
  if (!session) return false;
  const std::vector<Sha256> hashes = TRY(session->contents());
  if (hashes.empty()) return false;
  const std::string path = complete_manifest_path(options_.manifest_path);
  TRY(io::write_file_atomically(state.environment.files, path,
                                as_bytes(with_hashes(*manifest_, hashes))));
  completed_ = TRY(Manifest::open(state.environment.files, path, true));
  session->contents_written(completed_->root());
  log(state.environment.log, LogLevel::kInfo, "all of {} has been read: its manifest is complete",
      options_.origin.url);
  whole_.store(completed_.get(), std::memory_order_release);
  session->lose();  // the next one opens the complete dataset
  return true;
}

// The daemon is there and does not give an item that the origin gives.
void DatasetImpl::refused(ProcessState& state, const Error& reason) {
  state.refused_at = state.environment.clock.now();
  if (state.refused.exchange(true)) return;
  log(state.environment.log, LogLevel::kWarning,
      "reading some of {} from its origin, past the daemon: {}", options_.origin.url,
      reason.message);
}

void DatasetImpl::fell_back(ProcessState& state, const Error& reason) {
  state.degraded = true;
  if (state.warned.exchange(true)) return;
  log(state.environment.log, LogLevel::kWarning, "reading {} from its origin without a cache: {}",
      options_.origin.url, reason.message);
}

}  // namespace

Result<std::shared_ptr<Dataset>> Dataset::open(DatasetOptions options, Environment environment) {
  auto manifest = Manifest::open(environment.files, options.manifest_path, true);
  if (!manifest && manifest.error().code == Code::kNotFound) {  // it was provisional, perhaps
    options.manifest_path = complete_manifest_path(options.manifest_path);
    auto whole = Manifest::open(environment.files, options.manifest_path, true);
    if (whole) manifest = std::move(whole);
  }
  if (!manifest) return std::move(manifest).error();
  return std::shared_ptr<Dataset>(
      std::make_shared<DatasetImpl>(std::move(options), environment, *std::move(manifest)));
}

}  // namespace quiver::cache
