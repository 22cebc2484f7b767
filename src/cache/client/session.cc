#include "cache/client/session.h"

#include <algorithm>
#include <thread>

#include "io/memory.h"

namespace quiver::cache {
namespace {

constexpr Duration kHeartbeatLimit = std::chrono::seconds(1);
constexpr auto kPatience =
    std::chrono::milliseconds(750);  // beyond what the daemon was asked to wait
constexpr Duration kLookEvery = std::chrono::milliseconds(100);
constexpr Duration kForLine = std::chrono::milliseconds(20);
constexpr auto kWaitOnLast = std::chrono::milliseconds(20);  // others need that connection too
constexpr Duration kLongestOpening = std::chrono::minutes(2);
constexpr Duration kForRenewal = std::chrono::seconds(5);  // without it nothing more comes
constexpr Duration kLongestPing = std::chrono::seconds(5);
constexpr Duration kAskWhileOpening = std::chrono::seconds(1);
constexpr std::uint64_t kCheckedPerMs = 100'000;               // bytes: what a slow disk gives
constexpr Duration kLeaving = std::chrono::milliseconds(250);  // training waits for that
constexpr Duration kAskAgain = std::chrono::milliseconds(250);

}  // namespace

Session::Session(ViewReader view, OpenReply opened, Token token, DaemonAddress address,
                 Environment environment)
    : view_(std::move(view)),
      opened_(std::move(opened)),
      token_(token),
      address_(std::move(address)),
      environment_(environment),
      verified_((view_.size() + 63) / 64),
      last_beat_(view_.heartbeat()),
      moved_at_(environment.clock.now()) {
  for (auto& fd : fds_) fd = -1;
}

Session::~Session() {
  segments_->remove_owner(me_);
  pool_.with([&](Pool& pool) {
    for (Line& line : pool.idle) fds_[line.slot] = -1;
  });
}

Result<std::shared_ptr<Session>> Session::open(Greeted&& greeted, const DaemonAddress& address,
                                               const Manifest& manifest, OriginSettings origin,
                                               Environment environment) {
  const io::Fd sealed = TRY(io::make_sealed_copy("quiver-manifest", manifest.file_bytes()));
  const std::array fds = {sealed.get()};
  const OpenRequest request{manifest.root(), std::move(origin)};
  // As long as it answers another connection it is at work.
  const rpc::Patience patience{environment.clock, kAskWhileOpening, [&] {
                                 return greet_daemon(address, greeted.hello.session,
                                                     environment.clock.now() + kLongestPing)
                                     .has_value();
                               }};
  rpc::Message reply =
      TRY(greeted.connection->call(static_cast<std::uint16_t>(Request::kOpen), encode(request), fds,
                                   environment.clock.now() + kLongestOpening, &patience));
  OpenReply opened = TRY(decode<OpenReply>(reply.payload));
  if (reply.fds.size() != 1 || opened.items != manifest.size()) {
    return error(Code::kVersion,
                 "the daemon at {} answered with another dataset than was asked for",
                 address.socket);
  }
  ViewReader view = TRY(ViewReader::map(reply.fds[0], manifest.size()));
  const Token token = greeted.hello.session;
  std::shared_ptr<Session> session(
      new Session(std::move(view), std::move(opened), token, address, environment));
  Line first;
  first.first = true;
  session->pool_.with([](Pool& pool) { pool.taken[0] = true; });
  session->adopt(first, std::move(greeted), 0);
  session->give_line(std::move(first));
  return session;
}

void Session::adopt(Line& line, Greeted greeted, std::size_t slot) {
  line.connection = std::move(greeted.connection);
  line.slot = slot;
  fds_[slot] = greeted.fd;
}

void Session::drop(Line line) {
  fds_[line.slot] = -1;
  line.connection.reset();
  pool_.change([&](Pool& pool) { pool.taken[line.slot] = false; });
}

bool Session::may_grow(const Pool& pool) const {
  return std::ranges::find(pool.taken, false) != pool.taken.end() &&
         environment_.clock.now() >= pool.no_more_until;
}

// An idle one, or a new one. Where none can be made, those that are there have to do.
Result<Session::Line> Session::take_line(Instant deadline) {
  for (;;) {
    Line line;
    bool fresh = false;
    const bool got = pool_.wait_for(
        std::stop_token{}, deadline - environment_.clock.now(),
        [&](const Pool& pool) { return !pool.idle.empty() || may_grow(pool); },
        [&](Pool& pool) {
          fresh = pool.idle.empty();
          if (fresh) {
            const auto slot = std::ranges::find(pool.taken, false);
            *slot = true;
            line.slot = static_cast<std::size_t>(slot - pool.taken.begin());
          } else {
            line = std::move(pool.idle.back());
            pool.idle.pop_back();
          }
          line.last = pool.idle.empty() && !may_grow(pool);
        });
    if (!got) {
      return error(Code::kTimeout, "all connections to the daemon at {} are busy", address_.socket);
    }
    if (!fresh) return line;
    auto greeted = greet_daemon(address_, token_, deadline, &fds_[line.slot]);
    if (greeted) {
      adopt(line, *std::move(greeted), line.slot);
      return line;
    }
    // Other times for other processes: they were refused at the same time.
    const Duration pause = kAskAgain + std::chrono::milliseconds(4 * token_[line.slot]);
    const bool others = pool_.change([&](Pool& pool) {
      pool.taken[line.slot] = false;
      pool.no_more_until = environment_.clock.now() + pause;
      return std::ranges::find(pool.taken, true) != pool.taken.end();
    });
    const Code code = greeted.error().code;
    if (!others || code == Code::kUnreachable || code == Code::kUnavailable) {
      return std::move(greeted).error();
    }
  }
}

Result<Session::Line> Session::take_usable_line(Instant deadline) {
  if (!alive()) return error(Code::kUnavailable, "the daemon at {} is gone", address_.socket);
  auto line = take_line(deadline);
  if (!line) {
    const Code code = line.error().code;
    if (code == Code::kUnreachable || code == Code::kUnavailable) lose();
  }
  return line;
}

void Session::give_line(Line line) {
  if (line.connection->broken()) {
    if (line.first) lose();
    drop(std::move(line));
    return;
  }
  pool_.change([&](Pool& pool) { pool.idle.push_back(std::move(line)); });
}

Result<rpc::Message> Session::call(Request type, const std::string& payload, Duration patience) {
  const Instant deadline = environment_.clock.now() + patience;
  return call_over(TRY(take_usable_line(deadline)), type, payload, deadline);
}

Result<rpc::Message> Session::call_over(Line line, Request type, const std::string& payload,
                                        Instant deadline) {
  // A heart that stands still answers nobody: all who wait for it stop at the same time.
  const rpc::Patience patience{environment_.clock, kLookEvery, [this] { return alive(); }};
  auto reply =
      line.connection->call(static_cast<std::uint16_t>(type), payload, {}, deadline, &patience);
  if (!reply) {
    // A broken connection means a daemon that is gone, unless it was only slow.
    const Code code = reply.error().code;
    if (code == Code::kUnavailable || (line.connection->broken() && code != Code::kTimeout)) lose();
  }
  give_line(std::move(line));
  return reply;
}

bool Session::alive() {
  const Instant now = environment_.clock.now(), beat = view_.heartbeat();
  if (last_beat_.load() != beat) {
    moved_at_ = now;  // first: who sees the beat sees when it came
    last_beat_ = beat;
  } else if (!lost() && now - moved_at_.load() > kHeartbeatLimit) {
    lose();
  }
  return !lost();
}

Result<FetchReply> Session::fetch(const std::vector<ItemId>& items,
                                  std::chrono::milliseconds wait) {
  Line line =
      TRY(take_usable_line(environment_.clock.now() + (wait.count() == 0 ? kPatience : kForLine)));
  if (line.last) wait = std::min(wait, kWaitOnLast);
  FetchRequest request{opened_.dataset, {}, static_cast<std::uint32_t>(wait.count())};
  request.items.reserve(items.size());
  for (const ItemId id : items) request.items.push_back(id.value);
  const rpc::Message reply = TRY(call_over(std::move(line), Request::kFetch, encode(request),
                                           environment_.clock.now() + wait + kPatience));
  FetchReply results = TRY(decode<FetchReply>(reply.payload));
  if (results.results.size() != items.size()) {
    return error(Code::kCorrupt, "the daemon answered for {} items, not {}", results.results.size(),
                 items.size());
  }
  return results;
}

Result<std::shared_ptr<JobBoardWriter>> Session::join(JoinRequest request, Duration patience) {
  request.dataset = opened_.dataset;
  const Seat seat{request.job, request.rank};
  if (!seats_.with([&](auto& seats) { return seats.insert(seat).second; })) {
    return error(Code::kInvalid, "rank {} of this job is there already, in this process",
                 request.rank);
  }
  auto board = ask_for_board(request, patience);
  if (!board) {
    seats_.with([&](auto& seats) { seats.erase(seat); });
    return std::move(board).error();
  }
  return std::shared_ptr<JobBoardWriter>(
      new JobBoardWriter(*std::move(board)),
      [seat, session = weak_from_this()](JobBoardWriter* writer) {
        writer->end();
        delete writer;
        if (const auto here = session.lock()) here->leave(seat);
      });
}

void Session::leave(const Seat& seat) {
  if (!lost()) {
    // Where it is not heard, the daemon drops the board when the rank joins again or the session
    // ends.
    (void)call(Request::kLeave, encode(LeaveRequest{opened_.dataset, seat.first, seat.second}),
               kLeaving);
  }
  seats_.with([&](auto& seats) { seats.erase(seat); });
}

Result<JobBoardWriter> Session::ask_for_board(const JoinRequest& request, Duration patience) {
  const Instant give_up = environment_.clock.now() + patience;
  auto reply = call(Request::kJoin, encode(request), kPatience);
  while (!reply && reply.error().code == Code::kInvalid && environment_.clock.now() < give_up) {
    std::this_thread::sleep_for(kAskAgain);
    reply = call(Request::kJoin, encode(request), kPatience);
  }
  if (!reply) return std::move(reply).error();
  if (reply->fds.size() != 1) return error(Code::kVersion, "the daemon sent no board for the job");
  return JobBoardWriter::map(reply->fds[0], opened_.items);
}

Status Session::renew(const RenewableCredentials::Now& credentials) {
  TRY(call(Request::kRenew, encode(RenewRequest{opened_.dataset, credentials.keys}), kForRenewal));
  credentials_version_ = credentials.version;
  return {};
}

Status Session::report(ReportRequest request) {
  request.dataset = opened_.dataset;
  if (auto reply = call(Request::kReport, encode(request), kPatience); !reply) {
    return std::move(reply).error();
  }
  return {};
}

Result<InsertReply> Session::insert(const Sha256& hash, ByteSpan bytes) {
  const InsertRequest request{hash, std::string(as_text(bytes))};
  const rpc::Message reply = TRY(call(Request::kInsert, encode(request), std::chrono::seconds(10)));
  return decode<InsertReply>(reply.payload);
}

bool Session::damaged(ItemId id, const ViewWord& word, Bytes length) {
  const DamagedRequest request{opened_.dataset, id.value, word.segment().value, word.offset()};
  const auto reply = call(Request::kDamaged, encode(request),
                          kPatience + std::chrono::milliseconds(length.value / kCheckedPerMs));
  if (!reply) return false;
  const auto answer = decode<DamagedReply>(reply->payload);
  return answer && answer->gone;
}

Result<std::vector<Sha256>> Session::contents() {
  const ContentsRequest request{opened_.dataset, {}};
  const auto reply = TRY(call(Request::kContents, encode(request), kLongestOpening));
  const auto answer = TRY(decode<ContentsReply>(reply.payload));
  std::vector<Sha256> hashes;
  if (answer.unread != 0) return hashes;
  if (reply.fds.size() != 1) {
    return error(Code::kCorrupt, "the daemon at {} sent no hashes", address_.socket);
  }
  hashes.resize(view_.size());
  const MutableByteSpan out = std::as_writable_bytes(std::span(hashes));
  if (TRY(environment_.files.pread(reply.fds[0].get(), out, 0)) != out.size()) {
    return error(Code::kCorrupt, "the daemon at {} sent too few hashes", address_.socket);
  }
  return hashes;
}

void Session::contents_written(const Sha256& root) {
  (void)call(Request::kContents, encode(ContentsRequest{opened_.dataset, root}), kPatience);
}

// nullptr when there is none: the segment has gone, or this process has no room for a descriptor.
SegmentTable::Handle Session::fetch_segment(SegmentId id) {
  const SegmentsRequest request{opened_.dataset, {id.value}};
  auto reply = call(Request::kSegments, encode(request), kPatience);
  if (!reply) return nullptr;
  const auto named = decode<SegmentsReply>(reply->payload);
  const std::vector<std::uint32_t> wanted{id.value};
  if (!named || named->segments != wanted || reply->fds.size() != 1) return nullptr;
  return segments_->insert(me_, id, std::move(reply->fds[0]));
}

// Compares the checksum of the first read of an item that finds it right, and of some later ones.
bool Session::right(ItemId id, ByteSpan bytes) {
  const std::uint32_t one_in = opened_.verify_one_in;
  const std::uint64_t bit = std::uint64_t{1} << (id.value & 63);
  std::atomic<std::uint64_t>& word = verified_[id.value >> 6];
  const bool known = (word.load(std::memory_order_relaxed) & bit) != 0;
  if (one_in == 0) return true;
  if (known && reads_.fetch_add(1, std::memory_order_relaxed) % one_in != 0) return true;
  const bool same = checksum32(bytes) == view_.checksum(id);
  if (same && !known) word.fetch_or(bit, std::memory_order_relaxed);
  if (!same && known) word.fetch_and(~bit, std::memory_order_relaxed);
  return same;
}

Hit Session::read_resident(ItemId id, MutableByteSpan out, ViewWord& word) {
  word = view_.word(id);
  for (;;) {
    if (word.residency() != Residency::kHere) return Hit::kAbsent;
    SegmentTable::Handle segment = segments_->find(me_, word.segment());
    if (!segment) segment = fetch_segment(word.segment());
    std::size_t got = 0;
    if (segment) {
      const auto n = environment_.files.pread(segment->fd.get(), out, word.offset());
      if (!n) return Hit::kCorrupt;  // the disk fails here
      got = *n;
    }
    if (segment && got == out.size()) break;
    // Evicted under our hands: the file is truncated and its number never comes again.
    segments_->forget(me_, word.segment());
    const ViewWord now = view_.word(id);
    if (now == word) return Hit::kStale;
    word = now;
  }
  return right(id, out) ? Hit::kHit : Hit::kCorrupt;
}

bool Session::holds(int fd) const {
  return std::ranges::any_of(fds_, [fd](const auto& held) { return held == fd; });
}

void Session::abandon_after_fork() {
  for (auto& fd : fds_) {
    if (const int number = fd.exchange(-1); number >= 0) io::Fd(number).reset();
  }
}

}  // namespace quiver::cache
