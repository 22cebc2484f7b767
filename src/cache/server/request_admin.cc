// What people ask: status, warm, evict, stop.
#include <thread>

#include "cache/server/requests.h"

namespace quiver::cache {

Result<rpc::Reply> handle_status(const RequestContext& context) {
  StatusReply reply;
  reply.json = TRY(context.events.ask(
      [](Control& control) -> Result<std::string> { return control.status_json(); }));
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
    const auto progress = TRY(context.events.ask([&](Control& control) -> Result<WarmProgress> {
      return control.warm(connection.session, warm.dataset);
    }));
    if (progress.done || clock.now() >= deadline || stop.stop_requested()) {
      return reply_with(progress.reply);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Result<rpc::Reply> handle_evict(const RequestContext& context, rpc::Message& request) {
  const EvictRequest evict = TRY(decode<EvictRequest>(request.payload));
  return reply_with(TRY(context.events.ask(
      [&](Control& control) -> Result<EvictReply> { return control.evict(evict.public_id); })));
}

Result<rpc::Reply> handle_stop(const RequestContext& context) {
  context.events.push([](Control& control) { control.stop(); });
  return rpc::Reply{};
}

}  // namespace quiver::cache
