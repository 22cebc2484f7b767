// Requests: what a connection's thread does with each message. One function a request; those that
// need the daemon's state ask the control thread.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "base/guarded.h"
#include "base/result.h"
#include "cache/client/protocol.h"
#include "cache/origin/pace.h"
#include "cache/server/control.h"
#include "cache/server/events.h"
#include "cache/server/server.h"
#include "rpc/server.h"

namespace quiver::cache {

struct RequestContext {
  const DaemonOptions& options;
  DaemonEnvironment environment;
  Store& store;
  EventQueue& events;
  Guarded<std::set<Sha256>>& building;  // datasets whose state a thread is building
  const std::unique_ptr<rpc::Server>& server;
  Guarded<bool>& checking;  // whether a thread looks at an item that is said to be bad
  OriginPaces& paces;       // how fast each server is asked, over all sessions
};

// What a connection is, once it has said hello. Lives in rpc::Peer::session.
struct ConnectionState {
  std::uint64_t session = 0;
  bool first = false;                      // the session ends with this connection
  std::shared_ptr<IncomingItem> incoming;  // whose parts it is sending
};

Result<rpc::Reply> handle_request(const RequestContext& context, rpc::Peer& peer,
                                  rpc::Message& request);
void connection_closed(const RequestContext& context, rpc::Peer& peer);

Result<rpc::Reply> handle_hello(const RequestContext& context, rpc::Peer& peer,
                                rpc::Message& request);
Result<rpc::Reply> handle_open(const RequestContext& context, ConnectionState& connection,
                               rpc::Message& request, std::stop_token stop);
Result<rpc::Reply> handle_renew(const RequestContext& context, ConnectionState& connection,
                                rpc::Message& request);
Result<rpc::Reply> handle_join(const RequestContext& context, ConnectionState& connection,
                               rpc::Message& request);
Result<rpc::Reply> handle_leave(const RequestContext& context, ConnectionState& connection,
                                rpc::Message& request);
Result<rpc::Reply> handle_segments(const RequestContext& context, ConnectionState& connection,
                                   rpc::Message& request);
Result<rpc::Reply> handle_fetch(const RequestContext& context, ConnectionState& connection,
                                rpc::Message& request, std::stop_token stop);
Result<rpc::Reply> handle_insert(const RequestContext& context, rpc::Message& request);
Result<rpc::Reply> handle_insert_part(const RequestContext& context, ConnectionState& connection,
                                      rpc::Message& request);
Result<rpc::Reply> handle_damaged(const RequestContext& context, ConnectionState& connection,
                                  rpc::Message& request, std::stop_token stop);
Result<rpc::Reply> handle_contents(const RequestContext& context, ConnectionState& connection,
                                   rpc::Message& request);
Result<rpc::Reply> handle_report(const RequestContext& context, ConnectionState& connection,
                                 rpc::Message& request);
Result<rpc::Reply> handle_status(const RequestContext& context);
// What the daemon says of itself, as one JSON object.
Result<std::string> status_text(const RequestContext& context);
Result<rpc::Reply> handle_warm(const RequestContext& context, ConnectionState& connection,
                               rpc::Message& request, std::stop_token stop);
Result<rpc::Reply> handle_evict(const RequestContext& context, rpc::Message& request);
// Understood of every version: it needs no hello.
Result<rpc::Reply> handle_stop(const RequestContext& context, const rpc::Peer& peer);

// At the end of warming: what neither came nor is said to have failed did not stay, for other data
// needed the room. Whoever waits is told, for it would wait for ever.
void count_missing(WarmReply& reply);

// kDenied unless it is the daemon's own user.
Status check_user(const RequestContext& context, const rpc::Peer& peer);

// A descriptor for a reply, which closes what it sends.
Result<io::Fd> duplicate(int fd);

template <class M>
rpc::Reply reply_with(const M& message) {
  rpc::Reply reply;
  reply.payload = encode(message);
  return reply;
}

}  // namespace quiver::cache
