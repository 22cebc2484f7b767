// A daemon of a few lines over a real socket, real segment files and a real view, that fails as
// told.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "base/guarded.h"
#include "cache/client/protocol.h"
#include "cache/manifest/manifest.h"
#include "cache/view/job_board.h"
#include "cache/view/view.h"
#include "rpc/server.h"

namespace quiver::cache {

class QuietLog final : public LogSink {
 public:
  void write(LogLevel level, std::string_view line) override {
    if (level < LogLevel::kWarning) return;
    warnings_.with([&](auto& w) { w.emplace_back(line); });
  }
  std::vector<std::string> warnings() const {
    return warnings_.with([](const auto& w) { return w; });
  }

 private:
  Guarded<std::vector<std::string>> warnings_;
};

class ScriptedDaemon {
 public:
  // Serves `manifest`, whose items' bytes are given by `content`, from segments in `folder`.
  ScriptedDaemon(const std::string& folder, std::shared_ptr<const Manifest> manifest,
                 std::function<std::string(ItemId)> content)
      : folder_(folder),
        manifest_(std::move(manifest)),
        content_(std::move(content)),
        view_(ViewWriter::create(manifest_->size()).value()),
        server_(
            io::UnixListener::bind(folder + "/quiverd.sock", 0600).value(), {}, clock_, log_,
            [this](rpc::Peer& peer, rpc::Message& m) { return handle(peer, m); },
            [this](rpc::Peer& peer) {
              if (peer.session.has_value()) ++sessions_ended;
            }),
        heart_([this](std::stop_token stop) {
          while (!stop.stop_requested()) {
            if (beating) view_.with([&](ViewWriter& v) { v.beat(clock_.now()); });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }) {}

  // Appends the item to a segment's file and publishes it.
  void put(ItemId id, std::uint32_t segment, bool pinned) {
    view_.with([&](ViewWriter& v) { put_locked(v, id, segment, pinned); });
  }
  // The rule of eviction: words first, then the file.
  void evict(std::uint32_t segment) {
    view_.with([&](ViewWriter& v) {
      for (std::uint32_t i = 0; i < v.size(); ++i) {
        const ViewWord word = v.word(ItemId(i));
        if (word.residency() == Residency::kHere && word.segment().value == segment)
          v.clear(ItemId(i));
      }
    });
    truncate(segment);
  }
  void truncate(std::uint32_t segment) {
    (void)::truncate(path_of(segment).c_str(), 0);
    (void)::unlink(path_of(segment).c_str());
  }
  void garble(std::uint32_t segment) {
    const int fd = ::open(path_of(segment).c_str(), O_WRONLY);
    (void)!::pwrite(fd, "XXXX", 4, 0);
    ::close(fd);
  }

  std::atomic<bool> beating = true, answers_fetch = true;
  std::atomic<std::uint32_t> protocol = kProtocolVersion, verify_one_in = 64;
  std::atomic<int> fetches = 0, opens = 0, inserts = 0, segment_requests = 0, sessions_ended = 0;
  std::atomic<int> greetings = 0, joins = 0, refused_joins = 0, insert_ms = 0;
  std::atomic<int> leaves = 0, leave_ms = 0;
  std::atomic<bool> room_for_parts = true;
  std::atomic<int> whole_from_parts = 0;  // items that came in parts, and were right
  std::atomic<std::size_t> largest_part = 0;
  std::atomic<int> damages = 0, hello_ms = 0, open_ms = 0;
  std::atomic<bool> drops_damaged = true, one_line_only = false;
  Guarded<std::set<std::uint32_t>> failing;

 private:
  std::string path_of(std::uint32_t segment) const {
    return fmt::format("{}/seg-{}", folder_, segment);
  }
  void put_locked(ViewWriter& v, ItemId id, std::uint32_t segment, bool pinned) {
    const std::string bytes = content_(id);
    io::Fd fd(::open(path_of(segment).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    const auto at = static_cast<std::uint64_t>(::lseek(fd.get(), 0, SEEK_END));
    (void)!::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    v.publish(id, ViewWord::here(SegmentId(segment), at, pinned), checksum32(as_bytes(bytes)));
    v.notify();
  }

  Result<rpc::Reply> handle(rpc::Peer& peer, rpc::Message& m) {
    rpc::Reply reply;
    switch (static_cast<Request>(m.type)) {
      case Request::kHello: {
        ++greetings;
        std::this_thread::sleep_for(std::chrono::milliseconds(hello_ms));
        const auto hello = TRY(decode<HelloRequest>(m.payload));
        if (one_line_only && hello.session != Token{}) return error(Code::kNoSpace, "too many");
        HelloReply answer{protocol, "scripted 9.9", 1, hello.session, folder_};
        if (hello.session == Token{}) {
          answer.session[0] = static_cast<std::uint8_t>(++tokens_);
          peer.session = true;
        }
        reply.payload = encode(answer);
        return reply;
      }
      case Request::kOpen: {
        ++opens;
        std::this_thread::sleep_for(std::chrono::milliseconds(open_ms));
        const auto open = TRY(decode<OpenRequest>(m.payload));
        const auto proof = TRY(Manifest::open(std::move(m.fds.at(0)), "proof", true));
        if (proof->root() != open.root)
          return error(Code::kDenied, "the manifest is not the root's");
        reply.payload = encode(OpenReply{1, "id", manifest_->size(), verify_one_in});
        reply.fds.emplace_back(view_.with([](ViewWriter& v) { return ::dup(v.readers_fd()); }));
        return reply;
      }
      case Request::kJoin:
        ++joins;
        if (refused_joins > 0) {
          --refused_joins;
          return error(Code::kInvalid, "rank 0 of this job is there already, in another process");
        }
        reply.fds.push_back(TRY(make_job_board(manifest_->size())));
        return reply;
      case Request::kLeave:
        ++leaves;
        std::this_thread::sleep_for(std::chrono::milliseconds(leave_ms));
        return reply;
      case Request::kSegments: {
        ++segment_requests;
        SegmentsReply answer;
        for (const std::uint32_t s : TRY(decode<SegmentsRequest>(m.payload)).segments) {
          const int fd = ::open(path_of(s).c_str(), O_RDONLY | O_CLOEXEC);
          if (fd < 0) continue;
          answer.segments.push_back(s);
          reply.fds.emplace_back(fd);
        }
        reply.payload = encode(answer);
        return reply;
      }
      case Request::kFetch:
        return fetch(peer, TRY(decode<FetchRequest>(m.payload)));
      case Request::kDamaged: {
        ++damages;
        const auto damaged = TRY(decode<DamagedRequest>(m.payload));
        if (drops_damaged) view_.with([&](ViewWriter& v) { v.clear(ItemId(damaged.item)); });
        reply.payload = encode(DamagedReply{drops_damaged});
        return reply;
      }
      case Request::kInsert:
        ++inserts;
        std::this_thread::sleep_for(std::chrono::milliseconds(insert_ms));
        reply.payload = encode(InsertReply{true});
        return reply;
      case Request::kInsertPart: {
        const InsertPartRequest part = TRY(decode<InsertPartRequest>(m.payload));
        return insert_part(peer.number, part);
      }
      default:
        return reply;
    }
  }

  Result<rpc::Reply> insert_part(std::uint64_t peer, const InsertPartRequest& part) {
    parts_.with([&](auto& parts) {
      std::string& item = parts[peer];
      if (part.offset == 0) item.clear();
      largest_part = std::max<std::size_t>(largest_part, part.bytes.size());
      if (part.offset == item.size()) item += part.bytes;
      if (item.size() == part.length && sha256(as_bytes(item)) == part.hash) ++whole_from_parts;
    });
    return rpc::Reply{encode(InsertReply{room_for_parts}), {}};
  }

  Result<rpc::Reply> fetch(rpc::Peer&, const FetchRequest& request) {
    ++fetches;
    FetchReply answer;
    for (const std::uint32_t id : request.items) {
      if (failing.with([&](const auto& f) { return f.contains(id); })) {
        answer.results.push_back({FetchResult::kFailed, 1, "the daemon could not"});
      } else if (answers_fetch) {
        view_.with([&](ViewWriter& v) {
          if (v.word(ItemId(id)).residency() != Residency::kHere)
            put_locked(v, ItemId(id), 1000 + id, false);
        });
        answer.results.push_back({FetchResult::kHere, 0, ""});
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(request.wait_ms));
        answer.results.push_back({});
      }
    }
    return rpc::Reply{encode(answer), {}};
  }

  const std::string folder_;
  const std::shared_ptr<const Manifest> manifest_;
  const std::function<std::string(ItemId)> content_;
  RealClock clock_;
  QuietLog log_;
  Guarded<ViewWriter> view_;
  Guarded<std::map<std::uint64_t, std::string>> parts_;  // of the item that each peer is sending
  std::atomic<int> tokens_ = 0;
  rpc::Server server_;
  std::jthread heart_;
};

}  // namespace quiver::cache
