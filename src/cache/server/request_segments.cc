#include "cache/server/requests.h"

namespace quiver::cache {

// Descriptors of the session's own for segments that are still there.
Result<rpc::Reply> handle_segments(const RequestContext& context, ConnectionState& connection,
                                   rpc::Message& request) {
  const SegmentsRequest wanted = TRY(decode<SegmentsRequest>(request.payload));
  if (wanted.segments.size() > io::kMaxFdsPerMessage) {
    return error(Code::kInvalid, "at most {} descriptors travel in a message, not {}",
                 io::kMaxFdsPerMessage, wanted.segments.size());
  }
  const Status open = context.events.ask([&](Control& control) -> Status {
    auto dataset = control.dataset_of(connection.session, wanted.dataset);
    if (!dataset) return dataset.error();
    return {};
  });
  if (!open) return open.error();
  SegmentsReply reply;
  std::vector<io::Fd> fds;
  for (const std::uint32_t number : wanted.segments) {
    auto fd = context.store.open_segment(SegmentId(number));
    if (!fd) continue;  // it has gone: the words that named it have too
    reply.segments.push_back(number);
    fds.push_back(std::move(*fd));
  }
  rpc::Reply out = reply_with(reply);
  out.fds = std::move(fds);
  return out;
}

}  // namespace quiver::cache
