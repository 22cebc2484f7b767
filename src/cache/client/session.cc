#include "cache/client/session.h"

#include <algorithm>
#include <thread>

#include "io/memory.h"

namespace quiver::cache {
namespace {

constexpr Duration kHeartbeatLimit = std::chrono::seconds(1);
constexpr Duration kPatience = std::chrono::seconds(1);  // beyond what the daemon was asked to wait
constexpr Duration kAskAgain = std::chrono::milliseconds(250);

}  // namespace

Session::Session(ViewReader view, OpenReply opened, Token token, DaemonAddress address,
                 Environment environment)
    : view_(std::move(view)),
      opened_(std::move(opened)),
      token_(token),
      address_(std::move(address)),
      environment_(environment),
      opened_at_(environment.clock.now()),
      verified_((view_.size() + 63) / 64) {
  for (auto& fd : fds_) fd = -1;
}

Session::~Session() {
  pool_.with([&](Pool& pool) {
    for (Line& line : pool.idle) fds_[line.slot] = -1;
  });
}

Result<std::shared_ptr<Session>> Session::open(Greeted greeted, const DaemonAddress& address,
                                               const Manifest& manifest, OriginSettings origin,
                                               Environment environment, Instant deadline) {
  const io::Fd sealed = TRY(io::make_sealed_copy("quiver-manifest", manifest.file_bytes()));
  const std::array fds = {sealed.get()};
  const OpenRequest request{manifest.root(), std::move(origin)};
  rpc::Message reply = TRY(greeted.connection->call(static_cast<std::uint16_t>(Request::kOpen),
                                                    encode(request), fds, deadline));
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

Result<Session::Line> Session::take_line(Instant deadline) {
  Line line;
  bool fresh = false;
  const auto free_slot = [](const Pool& pool) {
    return std::ranges::find(pool.taken, false) != pool.taken.end();
  };
  const bool got = pool_.wait_for(
      std::stop_token{}, deadline - environment_.clock.now(),
      [&](const Pool& pool) { return !pool.idle.empty() || free_slot(pool); },
      [&](Pool& pool) {
        if (!pool.idle.empty()) {
          line = std::move(pool.idle.back());
          pool.idle.pop_back();
          return;
        }
        const auto slot = std::ranges::find(pool.taken, false);
        *slot = true;
        line.slot = static_cast<std::size_t>(slot - pool.taken.begin());
        fresh = true;
      });
  if (!got) {
    return error(Code::kTimeout, "all {} connections to the daemon at {} are busy", kMaxConnections,
                 address_.socket);
  }
  if (!fresh) return line;
  auto greeted = greet_daemon(address_, token_, deadline);
  if (!greeted) {
    drop(std::move(line));
    return std::move(greeted).error();
  }
  adopt(line, *std::move(greeted), line.slot);
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
  auto line = take_line(deadline);
  if (!line) {
    const Code code = line.error().code;
    if (code == Code::kUnreachable || code == Code::kUnavailable) lose();
    return std::move(line).error();
  }
  auto reply = line->connection->call(static_cast<std::uint16_t>(type), payload, {}, deadline);
  // A broken connection means a daemon that is gone, unless it was only slow.
  if (!reply && line->connection->broken() && reply.error().code != Code::kTimeout) lose();
  give_line(*std::move(line));
  return reply;
}

bool Session::alive() {
  // A view that was made for us may not have had its first beat yet.
  const Instant sign_of_life = std::max(view_.heartbeat(), opened_at_);
  if (!lost() && environment_.clock.now() - sign_of_life > kHeartbeatLimit) lose();
  return !lost();
}

Result<FetchReply> Session::fetch(const std::vector<ItemId>& items,
                                  std::chrono::milliseconds wait) {
  FetchRequest request{opened_.dataset, {}, static_cast<std::uint32_t>(wait.count())};
  request.items.reserve(items.size());
  for (const ItemId id : items) request.items.push_back(id.value);
  const rpc::Message reply = TRY(call(Request::kFetch, encode(request), wait + kPatience));
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
  std::optional<JobBoardWriter> board;
  const bool taken = boards_.with([&](Boards& boards) {
    const auto known = boards.find(seat);
    if (known == boards.end()) return false;
    board = std::exchange(known->second, std::nullopt);
    return !board.has_value();
  });
  if (taken) {
    return error(Code::kInvalid, "rank {} of this job is there already, in this process",
                 request.rank);
  }
  if (!board) {
    board = TRY(ask_for_board(request, patience));
    boards_.with([&](Boards& boards) { boards[seat] = std::nullopt; });
  }
  return std::shared_ptr<JobBoardWriter>(
      new JobBoardWriter(*std::move(board)),
      [seat, session = weak_from_this()](JobBoardWriter* writer) {
        writer->end();
        if (const auto here = session.lock()) {
          here->boards_.with([&](Boards& boards) { boards[seat] = std::move(*writer); });
        }
        delete writer;
      });
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

SegmentTable::Handle Session::fetch_segment(SegmentId id) {
  const SegmentsRequest request{opened_.dataset, {id.value}};
  auto reply = call(Request::kSegments, encode(request), kPatience);
  if (!reply) return nullptr;
  const auto named = decode<SegmentsReply>(reply->payload);
  if (!named || named->segments.size() != reply->fds.size()) return nullptr;
  for (std::size_t i = 0; i < reply->fds.size(); ++i) {
    segments_.insert(SegmentId(named->segments[i]), std::move(reply->fds[i]));
  }
  return segments_.find(id);
}

bool Session::must_verify(ItemId id) {
  if (opened_.verify_one_in <= 1) return opened_.verify_one_in == 1;
  const std::uint64_t bit = std::uint64_t{1} << (id.value & 63);
  std::atomic<std::uint64_t>& word = verified_[id.value >> 6];
  if ((word.load(std::memory_order_relaxed) & bit) == 0) {
    word.fetch_or(bit, std::memory_order_relaxed);
    return true;
  }
  return reads_.fetch_add(1, std::memory_order_relaxed) % opened_.verify_one_in == 0;
}

Hit Session::read_resident(ItemId id, MutableByteSpan out, bool& pinned) {
  ViewWord word = view_.word(id);
  for (;;) {
    if (word.residency() != Residency::kHere) return Hit::kAbsent;
    SegmentTable::Handle segment = segments_.find(word.segment());
    if (!segment) segment = fetch_segment(word.segment());
    std::size_t got = 0;
    if (segment) {
      if (auto n = environment_.files.pread(segment->fd.get(), out, word.offset())) got = *n;
    }
    if (segment && got == out.size()) break;
    // Evicted under our hands: the file is truncated and its number never comes again.
    segments_.forget(word.segment());
    const ViewWord now = view_.word(id);
    if (now == word) return Hit::kStale;
    word = now;
  }
  if (must_verify(id) && checksum32(out) != view_.checksum(id)) return Hit::kCorrupt;
  pinned = word.pinned();
  return Hit::kHit;
}

void Session::abandon_after_fork() {
  for (auto& fd : fds_) {
    if (const int number = fd.exchange(-1); number >= 0) io::Fd(number).reset();
  }
}

}  // namespace quiver::cache
