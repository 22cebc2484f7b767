#include "cache/client/ring_offers.h"

#include <algorithm>

namespace quiver::cache {

void RingOffers::start(const ViewReader& view) {
  std::ranges::fill(barred_below_, static_cast<std::uint32_t>(view.tail()));
  begin_epoch(view);
}

void RingOffers::begin_epoch(const ViewReader& view) {
  orders_.clear();
  live_ = 0;
  next_ = view.tail();
}

bool RingOffers::barred(std::uint64_t place, ItemId id) const {
  // Places of one item differ by far less than 2^31 orders.
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(place) - barred_below_[id.value]) < 0;
}

void RingOffers::retire(Order& order) {
  order.live = false;
  --live_;
}

void RingOffers::follow(const ViewReader& view, const EpochSampler& sampler) {
  const std::uint64_t tail = view.tail();
  next_ = std::max(next_, tail);
  for (const std::uint64_t head = view.head(); next_ < head; ++next_) {
    const auto id = view.ordered(next_);
    if (!id || id->value >= barred_below_.size() || barred(next_, *id)) continue;
    if (!sampler.wants(*id)) {
      ++useless_;
      continue;
    }
    orders_.push_back({next_, *id, true});
    ++live_;
  }
  for (; !orders_.empty() && (!orders_.front().live || orders_.front().place < tail);
       orders_.pop_front()) {
    if (orders_.front().live) --live_;
  }
  if (orders_.size() > 2 * live_ + 64)
    std::erase_if(orders_, [](const Order& o) { return !o.live; });
}

std::uint32_t RingOffers::offer(const ViewReader& view, EpochSampler& sampler) {
  follow(view, sampler);
  std::uint32_t offered = 0;
  for (Order& order : orders_) {
    if (sampler.wanted_now() == 0) break;
    if (!order.live) continue;
    if (!sampler.wants(order.id)) {
      retire(order);
    } else if (view.word(order.id).residency() == Residency::kHere) {
      retire(order);
      offered += sampler.offer(order.id) ? 1 : 0;
    }
  }
  return offered;
}

bool RingOffers::offer_oldest(EpochSampler& sampler) {
  for (Order& order : orders_) {
    if (!order.live) continue;
    retire(order);
    if (sampler.offer(order.id)) return true;
  }
  return false;
}

void RingOffers::taken(const std::vector<ItemId>& items) {
  for (const ItemId id : items) barred_below_[id.value] = static_cast<std::uint32_t>(next_);
}

}  // namespace quiver::cache
