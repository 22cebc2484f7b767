// JobState: what a checkpoint holds. Counts what was delivered to the training loop.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "cache/sampler/item_set.h"

namespace quiver::cache {

// Chain over what was delivered: SHA-256(previous, epoch, step, rank, ids). Two strict runs have
// equal chains; so have a substituted run and its replay (S12).
class DeliveryChain {
 public:
  void add(std::uint64_t epoch, std::uint32_t step, std::uint32_t rank,
           const std::vector<ItemId>& ids);
  const Sha256& value() const { return value_; }
  static DeliveryChain from(Sha256 value);

 private:
  Sha256 value_{};
};

// The part of one rank. A state of the job is the parts of all its ranks at one step.
struct RankState {
  std::uint32_t version = 1;
  std::string dataset;      // public id of the manifest's root
  std::uint32_t items = 0;  // N
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;  // the epoch that goes on; delivered is empty at its start
  std::uint32_t step = 0;   // batches of it that this rank delivered
  std::uint32_t world = 1, rank = 0;
  std::uint32_t batch_size = 1;
  std::string mode;          // "strict" or "substitute"
  ItemSet delivered;         // of this epoch, by this rank
  ItemSet delivered_before;  // of this epoch, by anyone, before the last resume
  std::uint32_t pads = 0;    // items this rank delivered twice for equal steps
  Sha256 chain;
  explicit RankState(std::uint32_t n) : items(n), delivered(n), delivered_before(n) {}
};

// At an epoch's end: the state becomes the start of the next epoch, nothing delivered.
void begin_next_epoch(RankState& state);

// Compact (bitmaps run-length or raw, whichever is smaller), versioned, frozen by golden bytes.
std::string encode(const RankState& state);
Result<RankState> decode_rank_state(std::string_view bytes);  // kCorrupt, kVersion
// A state of more items is not decoded: a few bytes may not ask for any amount of memory.
constexpr std::uint32_t kMostStateItems = 1u << 30;

struct JobState {
  std::uint64_t seed = 0, epoch = 0;
  std::uint32_t items = 0;
  ItemSet delivered{0};  // by all ranks in this epoch
  std::uint32_t step = 0;
  Sha256 chain{};  // of a job of one rank, which goes on with it; else zero
};

// kInvalid, saying which, when ranks are missing, appear twice, or differ in step, epoch, seed,
// dataset, world or what was delivered before; and when items were delivered more often than pads
// account for.
Result<JobState> merge(const std::vector<RankState>& parts);

}  // namespace quiver::cache
