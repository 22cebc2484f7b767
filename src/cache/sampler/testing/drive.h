// Drives samplers in tests: a simulated link, and the positions that come out.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "cache/sampler/epoch_sampler.h"

namespace quiver::cache::testing {

using Order = std::vector<std::uint32_t>;  // item ids in the order of delivery

inline ItemSet set_of(std::uint32_t n, const Order& ids) {
  ItemSet set(n);
  for (const std::uint32_t id : ids) set.insert(ItemId(id));
  return set;
}

// A fixed random part of all items: what a cache keeps from epoch to epoch.
inline ItemSet resident_part(std::uint32_t n, double fraction, std::uint64_t salt) {
  ItemSet set(n);
  Stream random(derive_key(Key{salt, 17}, 0));
  for (std::uint32_t i = 0; i < n; ++i) {
    if (random.unit() < fraction) set.insert(ItemId(i));
  }
  return set;
}

// The fresh order of fetches of one epoch; items overtake each other by their size: with eight
// connections an item ten times as long as the others is passed by about eighty.
inline Order arrivals(std::uint32_t n, std::uint64_t seed, std::uint64_t epoch,
                      const std::vector<double>& size) {
  Order items(n);
  Permutation(derive_key(seed, epoch, Purpose::kFetchOrder), n).fill(0, 1, items);
  std::vector<std::pair<double, std::uint32_t>> due;
  for (std::uint32_t i = 0; i < n; ++i) due.emplace_back(i + 8 * size[items[i]], items[i]);
  std::sort(due.begin(), due.end());
  for (std::uint32_t i = 0; i < n; ++i) items[i] = due[i].second;
  return items;
}

// The next batch: while the sampler waits, what it asks for itself arrives.
inline DrawnBatch next_by_own_order(EpochSampler& sampler) {
  for (;;) {
    if (auto batch = sampler.next()) return *batch;
    for (const ItemId id : sampler.own_order(sampler.wanted_now())) sampler.offer(id);
  }
}

// A whole epoch over a link that delivers `arriving` in that order, up to `window` items early.
inline std::vector<DrawnBatch> drive(EpochSampler& sampler, const Order& arriving,
                                     std::uint32_t window, std::uint64_t salt) {
  std::vector<DrawnBatch> batches;
  Stream random(derive_key(Key{salt, 23}, 0));
  std::uint32_t early = 0;
  auto at = arriving.begin();
  while (!sampler.done()) {
    if (auto batch = sampler.next()) {
      early -= std::min(early, batch->missing);
      batches.push_back(*batch);
      const auto burst = random.below(window - early + 1ULL);
      for (std::uint64_t i = 0; i < burst && at != arriving.end();) {
        if (sampler.offer(ItemId(*at++))) ++i, ++early;
      }
    } else if (at != arriving.end()) {
      if (sampler.offer(ItemId(*at++))) ++early;
    } else {
      batches.push_back(next_by_own_order(sampler));
    }
  }
  return batches;
}

inline Order flatten(const std::vector<DrawnBatch>& batches) {
  Order order;
  for (const auto& batch : batches) {
    for (const ItemId id : batch.items) order.push_back(id.value);
  }
  return order;
}

// positions[id] = when it was delivered; for epochs that deliver each item once.
inline std::vector<std::uint32_t> positions(const Order& order) {
  std::vector<std::uint32_t> at(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) at[order[i]] = i;
  return at;
}

}  // namespace quiver::cache::testing
