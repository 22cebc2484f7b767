#include "cache/server/requests.h"

#include <fcntl.h>

namespace quiver::cache {

Result<io::Fd> duplicate(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return os_error(errno, "copying a descriptor");
  return io::Fd(copy);
}

Status check_user(const RequestContext& context, const rpc::Peer& peer) {
  if (peer.credentials.uid == context.options.uid) return {};
  return error(Code::kDenied,
               "this daemon serves user {} only, not {}; use a cache directory of your own",
               context.options.uid, peer.credentials.uid);
}

Result<rpc::Reply> handle_request(const RequestContext& context, rpc::Peer& peer,
                                  rpc::Message& request) {
  const auto type = static_cast<Request>(request.type);
  if (type == Request::kHello) return handle_hello(context, peer, request);
  if (type == Request::kStop) return handle_stop(context, peer);
  auto* connection = std::any_cast<ConnectionState>(&peer.session);
  if (connection == nullptr) return error(Code::kInvalid, "the first message must be a hello");
  switch (type) {
    case Request::kOpen:
      return handle_open(context, *connection, request, peer.stop);
    case Request::kRenew:
      return handle_renew(context, *connection, request);
    case Request::kJoin:
      return handle_join(context, *connection, request);
    case Request::kLeave:
      return handle_leave(context, *connection, request);
    case Request::kSegments:
      return handle_segments(context, *connection, request);
    case Request::kFetch:
      return handle_fetch(context, *connection, request, peer.stop);
    case Request::kInsert:
      return handle_insert(context, request);
    case Request::kInsertPart:
      return handle_insert_part(context, *connection, request);
    case Request::kDamaged:
      return handle_damaged(context, *connection, request, peer.stop);
    case Request::kContents:
      return handle_contents(context, *connection, request);
    case Request::kReport:
      return handle_report(context, *connection, request);
    case Request::kStatus:
      return handle_status(context);
    case Request::kWarm:
      return handle_warm(context, *connection, request, peer.stop);
    case Request::kEvict:
      return handle_evict(context, request);
    case Request::kStop:
    case Request::kHello:
      break;
  }
  return error(Code::kVersion, "this daemon ({}) knows no request {}; the client may be newer",
               kSoftware, request.type);
}

void connection_closed(const RequestContext& context, rpc::Peer& peer) {
  const auto* connection = std::any_cast<ConnectionState>(&peer.session);
  if (connection == nullptr || !connection->first) return;
  context.events.push(
      [session = connection->session](Control& control) { control.close_session(session); });
}

}  // namespace quiver::cache
