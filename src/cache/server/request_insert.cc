// Bytes that passed by. Kept while there is room; want of room is no error.
#include "cache/server/requests.h"

namespace quiver::cache {

namespace {

Result<Lane> lane_for(const RequestContext& context, const Sha256& hash) {
  return context.events.ask(
      [&](Control& control) -> Result<Lane> { return control.lane_for_insert(hash); });
}

Result<rpc::Reply> answer(const RequestContext& context, const Sha256& hash,
                          const Result<StoredAt>& stored) {
  if (!stored && stored.error().code != Code::kNoSpace) return stored.error();
  InsertReply reply;
  reply.kept = stored.has_value();
  if (reply.kept) context.events.push([hash](Control& control) { control.inserted(hash); });
  return reply_with(reply);
}

// Begins the item, or goes on with the one that this connection has begun.
Status take_part(const RequestContext& context, ConnectionState& connection,
                 const InsertPartRequest& part) {
  auto& item = connection.incoming;
  if (part.offset == 0) {
    item.reset();  // its room first
    item = TRY(context.store.begin_item(Bytes(part.length)));
  }
  if (!item || item->length() != part.length || item->received() != part.offset) {
    return error(Code::kInvalid, "a part at {} of {} bytes does not follow the one before",
                 part.offset, part.length);
  }
  return item->add(as_bytes(part.bytes));
}

}  // namespace

Result<rpc::Reply> handle_insert(const RequestContext& context, rpc::Message& request) {
  const InsertRequest insert = TRY(decode<InsertRequest>(request.payload));
  const VerifiedItem item = TRY(VerifiedItem::verify(insert.hash, as_bytes(insert.bytes)));
  const Lane lane = TRY(lane_for(context, insert.hash));
  return answer(context, insert.hash, context.store.append(lane, item, limits::kInsertSegment));
}

Result<rpc::Reply> handle_insert_part(const RequestContext& context, ConnectionState& connection,
                                      rpc::Message& request) {
  const InsertPartRequest part = TRY(decode<InsertPartRequest>(request.payload));
  const Status taken = take_part(context, connection, part);
  const bool last = taken && connection.incoming->received() == part.length;
  if (taken && !last) return reply_with(InsertReply{true});
  const auto item = std::exchange(connection.incoming, nullptr);
  if (!taken) return answer(context, part.hash, Result<StoredAt>(taken.error()));
  const Lane lane = TRY(lane_for(context, part.hash));
  return answer(context, part.hash, item->finish(lane, part.hash));
}

}  // namespace quiver::cache
