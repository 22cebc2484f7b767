#include "cache/server/requests.h"

namespace quiver::cache {

// Directed reads: waits until the items are here, or says why they do not come.
Result<rpc::Reply> handle_fetch(const RequestContext& context, ConnectionState& connection,
                                rpc::Message& request, std::stop_token stop) {
  const FetchRequest fetch = TRY(decode<FetchRequest>(request.payload));
  if (fetch.items.size() > limits::kItemsPerFetch) {
    return error(Code::kInvalid, "one request fetches at most {} items, not {}",
                 limits::kItemsPerFetch, fetch.items.size());
  }
  auto wait = std::make_shared<FetchWait>(fetch.items.size());
  const Status asked = context.events.ask(
      [&](Control& control) -> Status { return control.fetch(connection.session, fetch, wait); });
  if (!asked) return asked.error();
  FetchReply reply;
  reply.results = wait->wait(stop, std::chrono::milliseconds(fetch.wait_ms));
  return reply_with(reply);
}

}  // namespace quiver::cache
