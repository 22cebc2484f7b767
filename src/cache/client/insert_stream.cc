#include "cache/client/insert_stream.h"

#include <algorithm>

namespace quiver::cache {
namespace {

constexpr Duration kPatience = std::chrono::seconds(30);  // for one message

Result<bool> send(rpc::Connection& connection, const Clock& clock, Request type,
                  const std::string& payload) {
  const auto reply =
      TRY(connection.call(static_cast<std::uint16_t>(type), payload, {}, clock.now() + kPatience));
  return TRY(decode<InsertReply>(reply.payload))
  .kept;
}

}  // namespace

Result<bool> InsertStream::add(ByteSpan piece, const Sha256& hash) {
  while (kept_ && !piece.empty()) {
    const ByteSpan part = piece.first(std::min(piece.size(), kInsertPart));
    const InsertPartRequest request{length_, sent_, hash, std::string(as_text(part))};
    kept_ = false;
    kept_ = TRY(send(connection_, clock_, Request::kInsertPart, encode(request)));
    sent_ += part.size();
    piece = piece.subspan(part.size());
  }
  return kept_;
}

Result<bool> insert_item(rpc::Connection& connection, const Clock& clock, const Sha256& hash,
                         ByteSpan bytes) {
  if (bytes.size() > kInsertPart) {
    return InsertStream(connection, clock, Bytes(bytes.size())).add(bytes, hash);
  }
  return send(connection, clock, Request::kInsert,
              encode(InsertRequest{hash, std::string(as_text(bytes))}));
}

}  // namespace quiver::cache
