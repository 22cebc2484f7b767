// RingOffers: which of the items that the daemon has staged a job may draw, and in which order.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cache/sampler/epoch_sampler.h"
#include "cache/view/view.h"

namespace quiver::cache {

// Follows the ring of orders of one view and offers its items to a sampler, oldest first and no
// more than the sampler needs now: so staging empties in the order in which it filled. One stay in
// staging serves a job once: an item that the job has taken is barred until it is ordered anew,
// across the switch of the epoch too (else epochs correlate). One thread at a time.
class RingOffers {
 public:
  explicit RingOffers(std::uint32_t items) : barred_below_(items) {}

  // Another daemon's view: its places begin anew, and nothing is barred.
  void start(const ViewReader& view);
  // A new epoch: what lies in the window is looked at again.
  void begin_epoch(const ViewReader& view);
  // Follows the ring, then offers of what is here as much as the sampler wants now. Returns how
  // many were offered.
  std::uint32_t offer(const ViewReader& view, EpochSampler& sampler);
  // Offers the oldest that is wanted though it is not here: the read of it waits or fails in its
  // own way. False when there is none.
  bool offer_oldest(EpochSampler& sampler);
  // The job has drawn these: what was ordered until now does not serve them again.
  void taken(const std::vector<ItemId>& items);
  // How many between tail and head are of use, here or on their way.
  std::size_t useful() const { return live_; }
  // How many were of none when they were met: then it is another job's order that passes.
  std::uint64_t useless() const { return useless_; }

 private:
  struct Order {
    std::uint64_t place;
    ItemId id;
    bool live;
  };
  void follow(const ViewReader& view, const EpochSampler& sampler);
  bool barred(std::uint64_t place, ItemId id) const;
  void retire(Order& order);

  std::deque<Order> orders_;  // of items wanted when they were met, in ring order
  std::size_t live_ = 0;      // of them not yet offered or dropped
  std::uint64_t next_ = 0;    // the first place not looked at
  std::uint64_t useless_ = 0;
  std::vector<std::uint32_t> barred_below_;  // by item, the low bits of a place
};

}  // namespace quiver::cache
