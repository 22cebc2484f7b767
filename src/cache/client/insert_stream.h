// InsertStream: hands the daemon an item in parts, over one connection that it borrows. One thread
// at a time. After the first failure, or when the daemon has no room, it sends nothing more.
#pragma once

#include "base/clock.h"
#include "cache/client/protocol.h"
#include "rpc/connection.h"

namespace quiver::cache {

class InsertStream {
 public:
  InsertStream(rpc::Connection& connection, const Clock& clock, Bytes length)
      : connection_(connection), clock_(clock), length_(length.value) {}

  // Whether the daemon keeps it, so far. `hash` counts with the piece that ends the item.
  Result<bool> add(ByteSpan piece, const Sha256& hash);

 private:
  rpc::Connection& connection_;
  const Clock& clock_;
  const std::uint64_t length_;
  std::uint64_t sent_ = 0;
  bool kept_ = true;
};

// The whole item, in as many messages as it takes.
Result<bool> insert_item(rpc::Connection& connection, const Clock& clock, const Sha256& hash,
                         ByteSpan bytes);

}  // namespace quiver::cache
