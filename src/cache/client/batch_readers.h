// BatchReaders: the threads that read what was drawn.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "cache/client/feed_state.h"

namespace quiver::cache {

// Owns its threads. They work on the oldest batch together, item by item, so that the misses of one
// batch are waited for in parallel and the batch that is due first is ready first. A batch that is
// complete is published under its ticket, or kept until one is issued for it. What is left of a run
// that was given up is passed over, and reads of it that wait end.
// Threads: add() and grow() are called by the draw thread.
// Failure: an item that cannot be read is a failed row with its error; the batch goes on.
class BatchReaders {
 public:
  explicit BatchReaders(FeedShared& shared) : shared_(shared) {}
  ~BatchReaders() { stop(); }

  void add(std::shared_ptr<Reading> reading);
  // It is complete at once: none of its items can be had.
  void fail(const std::shared_ptr<Reading>& reading, const Error& why);
  void grow(std::uint32_t threads);  // to at least so many
  void stop();                       // ends reads that wait, joins

 private:
  using Queue = std::deque<std::shared_ptr<Reading>>;
  void run(std::stop_token stop);
  void read_item(Reading& reading, std::uint32_t index, std::stop_token stop);
  static void fail_row(Row& row, MutableByteSpan room, const Error& why);
  void finish(const std::shared_ptr<Reading>& reading);

  FeedShared& shared_;
  Guarded<Queue> queue_;
  std::vector<std::jthread> threads_;
};

}  // namespace quiver::cache
