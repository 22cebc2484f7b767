#include "cache/server/requests.h"
#include "cache/view/job_board.h"

namespace quiver::cache {

// A rank of a job: gets its board, which this process made and only preads.
Result<rpc::Reply> handle_join(const RequestContext& context, ConnectionState& connection,
                               rpc::Message& request) {
  const JoinRequest join = TRY(decode<JoinRequest>(request.payload));
  const std::uint32_t items =
      TRY(context.events.ask([&](Control& control) -> Result<std::uint32_t> {
        return TRY(control.dataset_of(connection.session, join.dataset))
        ->dataset->size();
      }));
  io::Fd board = TRY(make_job_board(items));
  rpc::Reply reply;
  reply.fds.push_back(TRY(duplicate(board.get())));
  const Status joined = context.events.ask([&](Control& control) -> Status {
    return control.join(connection.session, join, std::move(board));
  });
  if (!joined) return joined.error();
  return reply;
}

// A rank that ends before its session does: its board goes, and its place is free.
Result<rpc::Reply> handle_leave(const RequestContext& context, ConnectionState& connection,
                                rpc::Message& request) {
  const LeaveRequest leave = TRY(decode<LeaveRequest>(request.payload));
  const Status left = context.events.ask([&](Control& control) -> Status {
    control.leave(connection.session, leave);
    return {};
  });
  if (!left) return left.error();
  return rpc::Reply{};
}

// How the job fares, for status.
Result<rpc::Reply> handle_report(const RequestContext& context, ConnectionState& connection,
                                 rpc::Message& request) {
  const ReportRequest report = TRY(decode<ReportRequest>(request.payload));
  const Status taken = context.events.ask(
      [&](Control& control) -> Status { return control.report(connection.session, report); });
  if (!taken) return taken.error();
  return rpc::Reply{};
}

}  // namespace quiver::cache
