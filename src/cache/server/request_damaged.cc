#include "cache/server/requests.h"

namespace quiver::cache {

namespace {

constexpr Duration kLongestTurn = std::chrono::seconds(30);

// An item is read whole to be compared: one at a time costs the memory of one.
class CheckTurn {
 public:
  static Result<CheckTurn> take(Guarded<bool>& checking, std::stop_token stop) {
    const bool mine = checking.wait_for(
        stop, kLongestTurn, [](bool busy) { return !busy; }, [](bool& busy) { busy = true; });
    if (!mine) return error(Code::kNoSpace, "other damaged items are being looked at; ask again");
    return CheckTurn(checking);
  }
  CheckTurn(CheckTurn&& other) noexcept : checking_(std::exchange(other.checking_, nullptr)) {}
  ~CheckTurn() {
    if (checking_ != nullptr) checking_->change([](bool& busy) { busy = false; });
  }

 private:
  explicit CheckTurn(Guarded<bool>& checking) : checking_(&checking) {}
  Guarded<bool>* checking_;
};

// False when the copy is bad or cannot be read: it is found no more.
bool sound(Store& store, const Sha256& hash, const StoredAt& at) {
  std::vector<std::byte> bytes(at.length.value);
  const Status read = store.read(at, bytes);
  if (read && sha256(bytes) == hash) return true;
  // Of one that it found bad itself the store has seen to that.
  if (read || (read.error().code != Code::kCorrupt && read.error().code != Code::kNotFound)) {
    store.quarantine(hash);
  }
  return false;
}

}  // namespace

// A client could not read an item right. Our own copy is looked at, the client is not believed.
Result<rpc::Reply> handle_damaged(const RequestContext& context, ConnectionState& connection,
                                  rpc::Message& request, std::stop_token stop) {
  const DamagedRequest damaged = TRY(decode<DamagedRequest>(request.payload));
  const Sha256 hash = TRY(context.events.ask([&](Control& control) -> Result<Sha256> {
    const SessionDataset& open = *TRY(control.dataset_of(connection.session, damaged.dataset));
    if (damaged.item >= open.dataset->size()) {
      return error(Code::kInvalid, "the dataset has no item {}", damaged.item);
    }
    return open.dataset->content(ItemId(damaged.item));
  }));
  const CheckTurn turn = TRY(CheckTurn::take(context.checking, stop));
  const auto at = context.store.find(hash);
  const bool there = at && at->segment.value == damaged.segment && at->offset == damaged.offset;
  DamagedReply reply;
  reply.gone = !there || !sound(context.store, hash, *at);
  if (there && reply.gone) {
    TRY(context.events.ask([&](Control& control) -> Result<bool> {
      control.lost(hash);
      return true;
    }));
  }
  return reply_with(reply);
}

}  // namespace quiver::cache
