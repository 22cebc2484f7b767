#include "cache/server/requests.h"
#include "io/memory.h"

namespace quiver::cache {

// What the items of a provisional dataset hold, once all of it has been read.
Result<rpc::Reply> handle_contents(const RequestContext& context, ConnectionState& connection,
                                   rpc::Message& request) {
  const ContentsRequest asked = TRY(decode<ContentsRequest>(request.payload));
  std::vector<Sha256> contents;
  ContentsReply reply;
  TRY(context.events.ask([&](Control& control) -> Result<bool> {
    DatasetState& dataset = *TRY(control.dataset_of(connection.session, asked.dataset))
    ->dataset;
    reply.unread = dataset.unread_items();
    const bool written = asked.root != Sha256{};
    if (reply.unread == 0 && !written) {
      contents.reserve(dataset.size());
      for (std::uint32_t i = 0; i < dataset.size(); ++i) {
        contents.push_back(dataset.content(ItemId(i)));
      }
    }
    if (written) dataset.became(asked.root);
    return true;
  }));
  rpc::Reply out = reply_with(reply);
  if (!contents.empty()) {
    out.fds.push_back(
        TRY(io::make_sealed_copy("quiver-contents", std::as_bytes(std::span(contents)))));
  }
  return out;
}

}  // namespace quiver::cache
