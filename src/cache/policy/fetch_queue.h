// Which fetch goes next: the link is shared max-min between datasets. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/hash.h"
#include "base/units.h"

namespace quiver::cache {

// Fetches that wait for a thread, of each dataset those that somebody waits for before those that
// are staged. Between datasets the bytes are fair, whoever has more queued: each has a clock that
// runs on by what is fetched for it, the one that is furthest behind goes next, and one that comes
// back after a pause has saved nothing (start-time fair queueing, Goyal, Vin and Cheng, SIGCOMM
// 1996). For one thread.
class FetchQueue {
 public:
  enum class Kind { kDirected, kStaged };
  struct Entry {
    std::string dataset;
    Kind kind = Kind::kStaged;
    Sha256 hash;
  };

  void push_back(const Entry& entry);
  void push_front(const Entry& entry);  // that is to be tried again
  std::optional<Entry> pop();
  void charge(const std::string& dataset, Bytes bytes);  // of what was popped and is fetched

  std::size_t size() const { return size(Kind::kDirected) + size(Kind::kStaged); }
  std::size_t size(Kind kind) const { return sizes_[static_cast<std::size_t>(kind)]; }
  std::size_t staged_of(const std::string& dataset) const;

 private:
  struct Flow {
    std::array<std::deque<Sha256>, 2> queues;  // by kind
    std::uint64_t clock = 0;                   // bytes
    bool empty() const { return queues[0].empty() && queues[1].empty(); }
  };
  std::deque<Sha256>& queue_of(const Entry& entry);

  std::map<std::string, Flow> flows_;
  std::array<std::size_t, 2> sizes_{};
  std::uint64_t now_ = 0;  // the clock of the one that was last served
};

}  // namespace quiver::cache
