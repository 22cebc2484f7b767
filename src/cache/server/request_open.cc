#include <algorithm>

#include "cache/server/requests.h"

namespace quiver::cache {

namespace {

// The manifest that the client presents, checked once: one that is byte for byte the same as the
// one that is in use needs no more.
Result<std::shared_ptr<const Manifest>> proven(const RequestContext& context, io::Fd fd,
                                               const Sha256& root) {
  auto known =
      TRY(context.events.ask([root](Control& control) -> Result<std::shared_ptr<const Manifest>> {
        return control.manifest_of(root);
      }));
  io::Fd again = TRY(duplicate(fd.get()));
  auto manifest = TRY(Manifest::open(std::move(fd), "the client's manifest", known == nullptr));
  if (known != nullptr) {
    const ByteSpan a = known->file_bytes(), b = manifest->file_bytes();
    if (std::equal(a.begin(), a.end(), b.begin(), b.end())) return known;
    // Equal content in another place has the same root but other bytes.
    manifest = TRY(Manifest::open(std::move(again), "the client's manifest", true));
  }
  if (manifest->root() != root) {
    return error(Code::kInvalid, "the manifest is not the one whose root the client gave");
  }
  return manifest;
}

}  // namespace

// A dataset: proves the manifest, brings a way to the origin; brings back the view.
Result<rpc::Reply> handle_open(const RequestContext& context, ConnectionState& connection,
                               rpc::Message& request) {
  OpenRequest open = TRY(decode<OpenRequest>(request.payload));
  if (request.fds.size() != 1) {
    return error(Code::kInvalid, "opening a dataset takes one descriptor, of its manifest");
  }
  auto manifest = TRY(proven(context, std::move(request.fds[0]), open.root));
  const Settings& settings = context.options.settings;
  if (open.origin.url.empty()) open.origin.url = std::string(manifest->origin_url());
  const Bytes most = settings.rate_limit;
  if (most.value != 0 && (open.origin.rate_limit.value == 0 || open.origin.rate_limit > most)) {
    open.origin.rate_limit = most;
  }
  const auto& env = context.environment;
  std::shared_ptr<Origin> origin = TRY(
      open_origin(open.origin, OriginContext{env.files, env.http, env.clock, connection.session}));
  const bool known = TRY(context.events.ask(
      [&](Control& control) -> Result<bool> { return control.manifest_of(open.root) != nullptr; }));
  std::unique_ptr<DatasetState> built;
  if (!known) built = TRY(DatasetState::build(manifest, context.store));

  io::Fd view;
  const auto opened = TRY(context.events.ask([&](Control& control) -> Result<Control::Opened> {
    auto result = TRY(
        control.open_dataset(connection.session, std::move(built), manifest, std::move(origin)));
    view = TRY(duplicate(result.view_fd));
    return result;
  }));
  OpenReply reply;
  reply.dataset = opened.handle;
  reply.public_id = opened.public_id;
  reply.items = opened.items;
  reply.verify_one_in = settings.verify == Verify::kFill     ? 0
                        : settings.verify == Verify::kAlways ? 1
                                                             : 64;
  rpc::Reply out = reply_with(reply);
  out.fds.push_back(std::move(view));
  return out;
}

}  // namespace quiver::cache
