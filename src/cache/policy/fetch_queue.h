// Which fetch goes next: the link is shared max-min between datasets, and between the riders of
// one. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/units.h"

namespace quiver::cache {

// Shares by bytes, whoever has more queued: each flow has a clock that runs on by what is fetched
// for it, the one that is furthest behind goes next, and one that comes back after a pause has
// saved nothing (start-time fair queueing, Goyal, Vin and Cheng, SIGCOMM 1996). For one thread.
template <class Key, class Flow>
class FairShare {
 public:
  // The flow, to which something is about to be added.
  Flow& arriving(const Key& key) {
    Entry& entry = flows_[key];
    if (entry.flow.empty()) entry.clock = std::max(entry.clock, now_);
    return entry.flow;
  }
  const Flow* find(const Key& key) const {
    const auto at = flows_.find(key);
    return at == flows_.end() ? nullptr : &at->second.flow;
  }
  // Whose turn it is, or nullptr when all are empty.
  std::pair<const Key, Flow*> next() {
    typename Flows::iterator first = flows_.end();
    for (auto at = flows_.begin(); at != flows_.end(); ++at) {
      if (at->second.flow.empty()) continue;
      if (first == flows_.end() || at->second.clock < first->second.clock) first = at;
    }
    if (first == flows_.end()) return {Key{}, nullptr};
    now_ = std::max(now_, first->second.clock);
    return {first->first, &first->second.flow};
  }
  // Returns the flow while it is of any use.
  Flow* charge(const Key& key, Bytes bytes) {
    flows_[key].clock += bytes.value;
    std::erase_if(flows_, [this](const auto& entry) {
      return entry.second.flow.empty() && entry.second.clock <= now_;
    });
    const auto at = flows_.find(key);
    return at == flows_.end() ? nullptr : &at->second.flow;
  }

 private:
  struct Entry {
    Flow flow;
    std::uint64_t clock = 0;  // bytes
  };
  using Flows = std::map<Key, Entry>;
  Flows flows_;
  std::uint64_t now_ = 0;  // the clock of the one that was last served
};

// Fetches that wait for a thread. In a dataset those of the order that all live on, and before them
// those that somebody waits for. A job that rides on that order at a pace of its own has a flow of
// its own for what it reads itself: it neither holds the order up nor is starved by it. Riders
// together get three quarters while they have something queued.
class FetchQueue {
 public:
  static constexpr std::uint64_t kRidersToOrder = 3;

  enum class Kind { kDirected, kStaged };
  struct Entry {
    std::string dataset;
    std::uint64_t rider = 0;  // the job that reads it beside the order; 0: none
    Kind kind = Kind::kStaged;
    Sha256 hash;
  };

  void push_back(const Entry& entry);
  void push_front(const Entry& entry);  // that is to be tried again
  std::optional<Entry> pop();
  void charge(const Entry& entry, Bytes bytes);  // of what was popped and is fetched

  std::size_t size() const { return size(Kind::kDirected) + size(Kind::kStaged); }
  std::size_t size(Kind kind) const { return sizes_[static_cast<std::size_t>(kind)]; }
  std::size_t staged_of(const std::string& dataset) const;

 private:
  struct Job {
    std::array<std::deque<Sha256>, 2> queues;  // by kind
    bool empty() const { return queues[0].empty() && queues[1].empty(); }
  };
  struct Side {
    FairShare<std::uint64_t, Job> jobs;
    std::size_t size = 0;
    bool empty() const { return size == 0; }
  };
  struct Dataset {
    FairShare<bool, Side> sides;         // the order, and those who ride on it
    std::array<std::size_t, 2> sizes{};  // by kind
    bool empty() const { return sizes[0] + sizes[1] == 0; }
  };
  std::deque<Sha256>& queue_of(const Entry& entry);

  FairShare<std::string, Dataset> datasets_;
  std::array<std::size_t, 2> sizes_{};
};

}  // namespace quiver::cache
