// DigestKeeper: hands to the daemon what a digest downloads, so that nothing is downloaded twice.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/guarded.h"
#include "cache/client/daemon_link.h"
#include "cache/client/digest.h"
#include "cache/client/insert_stream.h"

namespace quiver::cache {

// Owns a session without a dataset and its connections, few however many
// threads keep. Any
// thread may call keep(). After the first failure it keeps nothing more: a digest needs no daemon.
// It offers the items that the cache will pin: those first in hash order, as far as its limit goes.
class DigestKeeper {
 public:
  // nullptr when no daemon can be had; that is logged once.
  static std::unique_ptr<DigestKeeper> connect(const DigestOptions& options,
                                               Environment environment, Bytes total);
  bool keep(const Sha256& hash, ByteSpan bytes);

  // An item that is read in pieces, whose hash is known at its end only. One thread; not after its
  // keeper.
  class LongItem {
   public:
    // The last piece comes with the hash. False: it is not kept, and the rest is not sent.
    bool add(ByteSpan piece, const std::optional<Sha256>& hash);

   private:
    friend class DigestKeeper;
    explicit LongItem(DigestKeeper& keeper) : keeper_(&keeper) {}
    DigestKeeper* keeper_;
    std::unique_ptr<rpc::Connection> connection_;
    std::optional<InsertStream> stream_;
  };
  LongItem begin(Bytes length);

 private:
  static constexpr std::size_t kMaxConnections = 8;  // besides the first: jobs need some too
  struct Pool {
    std::vector<std::unique_ptr<rpc::Connection>> idle;
    std::size_t open = 0;
  };
  DigestKeeper(DaemonAddress address, Token token, Environment environment, double share)
      : address_(std::move(address)), token_(token), environment_(environment), share_(share) {}
  std::unique_ptr<rpc::Connection> take();
  bool fail();  // always false
  bool in_share(const Sha256& hash) const;

  const DaemonAddress address_;
  const Token token_;
  const Environment environment_;
  const double share_;                      // of the hash order
  std::unique_ptr<rpc::Connection> first_;  // carries the session
  Guarded<Pool> pool_;
  std::atomic<bool> failed_ = false;
};

}  // namespace quiver::cache
