// DrawThread: decides what the next batches are, and tells the daemon what the job needs.
#pragma once

#include <memory>
#include <thread>

#include "cache/client/batch_readers.h"
#include "cache/client/feed_state.h"
#include "cache/client/ring_offers.h"

namespace quiver::cache {

// Owns the sampler of the run, the readers, and its thread, which starts with it and ends with it.
//
// It draws as soon as a ticket waits, and `read_ahead` batches beyond those issued while their
// bytes stay within the memory limit. The sampler's missing items are offered in the order of the
// daemon's ring; when nothing on it is of use for 50 ms, the job asks for items of its own order,
// and without a daemon it has no other. What was ordered and does not come for a second is drawn
// all the same: its read waits for it, or fails and says why. The next epoch is not planned before
// the loop asks for it: bytes fetched for an epoch that may never come would be the origin's loss,
// and the gap is a plan and a batch.
class DrawThread {
 public:
  explicit DrawThread(FeedShared& shared);
  ~DrawThread();

 private:
  void run(std::stop_token stop);
  bool wait_for_work(std::stop_token stop);
  void adopt(std::shared_ptr<const RunPlan> plan);
  bool draw(std::stop_token stop);
  void make_offers();
  void offer_own_order();
  bool enqueue(DrawnBatch batch, std::stop_token stop);
  Result<std::uint64_t> allocate(BlockPlan& block, std::optional<Error>& failure);
  void wait_for_arrivals(std::stop_token stop);
  void follow_view();
  // Once a second, and when the loop waits to join.
  void keep_house();
  std::optional<Error> rejoin(Duration patience);
  void find_lost();
  void publish_board();
  void report();
  void tell_board();

  static constexpr Duration kTell = std::chrono::milliseconds(100);  // the board, what is counted

  FeedShared& shared_;
  BatchReaders readers_;
  std::shared_ptr<const RunPlan> plan_;
  std::unique_ptr<EpochSampler> sampler_;
  std::optional<ItemSet> settled_;  // of the run, without what was lost
  std::shared_ptr<const ViewReader> view_;
  std::shared_ptr<const ViewReader> followed_;  // whose ring offers_ follows
  RingOffers offers_;
  std::vector<ItemId> asked_;       // of the own order, not yet offered
  std::uint64_t useless_then_ = 0;  // what had passed when the epoch began
  std::uint64_t generation_ = 0;    // of the daemon that was joined
  std::uint64_t evicted_ = 0;       // by the view's counter, when last looked at
  std::uint32_t seen_changes_ = 0;
  std::uint32_t drawn_ = 0, drawn_late_ = 0;  // batches of this epoch; those that waited for bytes
  bool waits_ = false;
  Instant asked_at_{};       // or some of it came last
  Instant starved_since_{};  // the draw has waited without any offer since
  Instant next_housekeeping_{}, next_telling_{};
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace quiver::cache
