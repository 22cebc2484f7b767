// What people ask: status, warm, evict, stop.
#include <algorithm>
#include <thread>

#include "cache/server/requests.h"

namespace quiver::cache {

namespace {

constexpr std::size_t kHashesPerTurn = 2000;  // the control thread has others to see to

Result<Unclaimed> count_unclaimed(const RequestContext& context) {
  Unclaimed sum;
  for (const SegmentInfo& segment : context.store.segments()) {
    if (segment.lane.group != "incoming") continue;
    const std::vector<Sha256> hashes = context.store.items_of(segment.id);
    for (std::size_t next = 0; next < hashes.size(); next += kHashesPerTurn) {
      const auto some =
          std::span(hashes).subspan(next).first(std::min(kHashesPerTurn, hashes.size() - next));
      TRY(context.events.ask([&](Control& control) -> Result<bool> {
        for (const Sha256& hash : some) {
          const auto at = context.store.find(hash);
          if (!at || control.claimed(hash)) continue;
          ++sum.items;
          sum.bytes += at->length;
        }
        return true;
      }));
    }
  }
  return sum;
}

}  // namespace

void count_missing(WarmReply& reply) {
  const std::uint64_t missing = reply.items_wanted - std::min(reply.items_wanted, reply.items_here);
  if (missing <= reply.items_failed) return;
  reply.items_failed = missing;
  if (reply.first_error.empty()) {
    reply.first_error = "the cache did not keep it, other data needed the room; raise disk_limit";
  }
}

Result<std::string> status_text(const RequestContext& context) {
  ServerFigures figures;
  figures.unclaimed = TRY(count_unclaimed(context));
  figures.connections = context.server->connections();
  figures.requests = context.server->payload_bytes();
  return context.events.ask(
      [&](Control& control) -> Result<std::string> { return control.status_json(figures); });
}

Result<rpc::Reply> handle_status(const RequestContext& context) {
  StatusReply reply;
  reply.json = TRY(status_text(context));
  return reply_with(reply);
}

// The first request begins it, later ones look how far it is: a client that waits asks again and
// again, each time for as long as it wants to wait.
Result<rpc::Reply> handle_warm(const RequestContext& context, ConnectionState& connection,
                               rpc::Message& request, std::stop_token stop) {
  const WarmRequest warm = TRY(decode<WarmRequest>(request.payload));
  const Clock& clock = context.environment.clock;
  const Instant deadline = clock.now() + std::chrono::milliseconds(warm.wait_ms);
  for (;;) {
    auto progress = TRY(context.events.ask([&](Control& control) -> Result<WarmProgress> {
      return control.warm(connection.session, warm.dataset);
    }));
    if (progress.done) count_missing(progress.reply);
    if (progress.done || clock.now() >= deadline || stop.stop_requested()) {
      return reply_with(progress.reply);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Result<rpc::Reply> handle_evict(const RequestContext& context, rpc::Message& request) {
  const EvictRequest evict = TRY(decode<EvictRequest>(request.payload));
  const EvictReply reply = TRY(context.events.ask(
      [&](Control& control) -> Result<EvictReply> { return control.evict(evict.public_id); }));
  // Who asked wants to see the room; a disk that stalls makes it later.
  static_cast<void>(context.store.wait_until_freed(limits::kEvictionWait));
  return reply_with(reply);
}

Result<rpc::Reply> handle_stop(const RequestContext& context, const rpc::Peer& peer) {
  if (Status ours = check_user(context, peer); !ours) return std::move(ours).error();
  context.events.push([](Control& control) { control.stop(); });
  return rpc::Reply{};
}

}  // namespace quiver::cache
