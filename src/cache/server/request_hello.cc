#include "cache/server/requests.h"
#include "io/process.h"

namespace quiver::cache {

// A greeting without a token opens a session; with one it joins that.
Result<rpc::Reply> handle_hello(const RequestContext& context, rpc::Peer& peer,
                                rpc::Message& request) {
  if (Status ours = check_user(context, peer); !ours) return std::move(ours).error();
  if (peer.session.has_value()) return error(Code::kInvalid, "a connection says hello once");
  const HelloRequest hello = TRY(decode<HelloRequest>(request.payload));
  if (hello.protocol != kProtocolVersion) {
    return error(Code::kVersion,
                 "the daemon ({}) speaks protocol {}, the client ({}) {}; stop the daemon with "
                 "'quiver stop' so that a new one starts",
                 kSoftware, kProtocolVersion, hello.software.substr(0, 100), hello.protocol);
  }
  ConnectionState connection;
  HelloReply reply;
  reply.software = kSoftware;
  reply.pid = context.options.pid;
  reply.cache_directory = context.options.cache_directory;
  reply.session = hello.session;
  if (hello.session == Token{}) {
    if (Status s = io::random_bytes(std::as_writable_bytes(std::span(reply.session))); !s) {
      return std::move(s).error();
    }
    connection.first = true;
    connection.session =
        TRY(context.events.ask([token = reply.session](Control& control) -> Result<std::uint64_t> {
          return control.open_session(token);
        }));
  } else {
    connection.session =
        TRY(context.events.ask([token = hello.session](Control& control) -> Result<std::uint64_t> {
          return control.find_session(token);
        }));
  }
  peer.session = connection;
  return reply_with(reply);
}

}  // namespace quiver::cache
