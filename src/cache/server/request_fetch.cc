#include <algorithm>

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

namespace {

// False when the store had a copy that is not these bytes: it is found no more. A client inserts
// what it found damaged, so a copy that is there is looked at and not believed.
bool intact(Store& store, const VerifiedItem& item) {
  const auto at = store.find(item.hash());
  if (!at) return true;
  std::vector<std::byte> bytes(at->length.value);
  const Status read = store.read(*at, bytes);
  if (read && std::equal(bytes.begin(), bytes.end(), item.bytes().begin(), item.bytes().end())) {
    return true;
  }
  if (!read && read.error().code == Code::kNotFound) return true;  // evicted meanwhile
  if (read || read.error().code != Code::kCorrupt) store.quarantine(item.hash());
  return false;
}

}  // namespace

// Bytes that passed by. Kept while there is room; want of room is no error.
Result<rpc::Reply> handle_insert(const RequestContext& context, rpc::Message& request) {
  const InsertRequest insert = TRY(decode<InsertRequest>(request.payload));
  const VerifiedItem item = TRY(VerifiedItem::verify(insert.hash, as_bytes(insert.bytes)));
  if (!intact(context.store, item)) {
    TRY(context.events.ask([&](Control& control) -> Result<bool> {
      control.lost(insert.hash);
      return true;
    }));
  }
  const Lane lane = TRY(context.events.ask(
      [&](Control& control) -> Result<Lane> { return control.lane_for_insert(insert.hash); }));
  InsertReply reply;
  const auto stored = context.store.append(lane, item, limits::kInsertSegment);
  if (!stored && stored.error().code != Code::kNoSpace) return stored.error();
  reply.kept = stored.has_value();
  if (reply.kept) {
    context.events.push([hash = insert.hash](Control& control) { control.inserted(hash); });
  }
  return reply_with(reply);
}

}  // namespace quiver::cache
