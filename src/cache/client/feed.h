// Feed: the batches of one rank, drawn and read ahead of the training loop, in memory that its
// worker processes share.
//
// The loop's process owns the Feed. torch's workers hold tickets (numbers that only rise, never
// used twice); what batch a ticket stands for is decided here, late, when its turn comes: the
// sampler draws from what is resident or arriving, reader threads pread into one block of the
// shared arena per batch, and a worker that waits for its ticket is woken by a futex. So drawing
// never makes the loop wait; reading may.
//
// Memory: blocks of the arena are counted by references in the block's header; a block returns when
// the last buffer over it is gone, in whichever process. While the consumer holds more than
// `memory_limit` of them, further blocks are made beyond it (they are the consumer's memory) and
// are given back to the system afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/client/dataset.h"
#include "cache/sampler/epoch_sampler.h"
#include "cache/sampler/job_state.h"
#include "cache/sampler/ranks.h"

namespace quiver::cache {

enum class Mode { kSubstitute, kStrict };

struct FeedOptions {
  std::uint32_t batch_size = 1;
  bool shuffle = false;  // without it always strict, ascending
  bool drop_last = false;
  Mode mode = Mode::kSubstitute;
  std::uint64_t seed = 0;
  std::uint32_t world = 1, rank = 0;
  Uneven uneven = Uneven::kPad;
  std::vector<ItemId> subset;    // empty: all items; else draw from these only
  std::uint32_t read_ahead = 4;  // batches that are read beyond those handed out
  // That may be waited for or be on their way at a time: workers × prefetch_factor and more. With
  // twice as many the oldest are given up.
  std::uint32_t max_tickets = 64;
  std::uint32_t reader_threads = 2;
  Bytes memory_limit = 1_GiB;
  std::array<std::uint8_t, 16> job{};  // the same on all ranks; zero: made here
};

// One item of a batch. `data` lies in the arena and is valid while the BatchView lives.
struct FedItem {
  ItemId id;
  ByteSpan data;
  Tier tier = Tier::kPinned;
  Code code = Code::kIo;
  bool failed = false;  // then `data` is empty and `code` and `error` say why
  std::string error;
};

// A batch in this process. Holds one reference to its block; share() makes another for a buffer
// that outlives it.
class BatchView {
 public:
  std::uint64_t ticket = 0, epoch = 0;
  std::uint32_t step = 0;
  bool abandoned = false;  // delivered already, or its epoch was given up: nothing in it
  std::vector<FedItem> items;
  std::shared_ptr<const void> block;  // copy it to keep the items' data alive
};

// Reads tickets; in the owner's process or in a worker that was forked or was sent the descriptor.
class FeedReader {
 public:
  static Result<std::shared_ptr<FeedReader>> attach(const io::Fd& shared);
  virtual ~FeedReader() = default;
  // Waits until the ticket's batch is ready. kTimeout; kCancelled when the owner is gone or closed.
  virtual Result<BatchView> wait(std::uint64_t ticket, Duration timeout) = 0;

  // How a batch goes on to the owner's process without a copy: whoever holds it sends, and says
  // there which feed and ticket; the owner's process receives, before it calls delivered(). Nothing
  // is lost with the message: in between it is the ticket that holds the batch, until it has been
  // delivered, is given up, or its slot is needed.
  virtual std::uint64_t identity() const = 0;   // of the feed, among all
  virtual bool send(std::uint64_t ticket) = 0;  // false: it is given up. Again and again is fine.
  virtual Result<BatchView> receive(std::uint64_t ticket) = 0;  // kCancelled: it is given up

  // Lets go of all batches that wait() gave, whoever holds them still: for the end of a worker,
  // which runs no destructors. Their data must not be read any more.
  virtual void release() = 0;
};

// Where the time and the bytes of an epoch went.
struct EpochReport {
  std::uint64_t epoch = 0;
  double seconds = 0;          // from the first issue to the last delivery
  double waited_link_s = 0;    // the loop waited and the bytes were not there
  double waited_decode_s = 0;  // the loop waited for decoding and collating
  std::uint64_t samples = 0, batches = 0, repeats = 0 /* pads */, skipped = 0;
  std::uint64_t tiers[kTiers] = {};  // samples by where they were read from
  std::uint64_t settled = 0;         // samples that were resident when the epoch began: the hits
  std::uint64_t origin_bytes = 0;    // that the node and this process read meanwhile
  bool degraded = false;
};

// How the loop came by a batch.
struct Handover {
  Duration waited{};          // by the loop, until it had it
  Duration decoding{};        // took, from the bytes to the batch
  Duration since_decoded{};   // it has been ready to be handed over
  std::uint32_t workers = 0;  // that decode beside the loop; 0: it does that itself
};

// Owned by one process; its methods may be called by any one thread at a time, but for stats.
class Feed {
 public:
  static Result<std::unique_ptr<Feed>> create(std::shared_ptr<Dataset> dataset, FeedOptions options,
                                              Environment environment);
  virtual ~Feed() = default;

  virtual int shared_fd() const = 0;                 // for workers
  virtual std::shared_ptr<FeedReader> reader() = 0;  // for this process
  // The batches of the epoch that begins next, or of the one that runs.
  virtual std::uint32_t batches() const = 0;
  // Begins the next epoch (the first one, or the one after; a running one is abandoned), or goes on
  // where the loaded state stood. Starts the threads when they are not there; the first time it
  // waits until there is a daemon or none. kInvalid, and nothing has changed, when this rank of the
  // job is there already.
  virtual Status begin_epoch() = 0;
  // Gives up what is left of the running epoch: its tickets end, and reads for it.
  virtual void abandon() = 0;
  // The next ticket of the epoch; nullopt when all of its batches have been issued.
  virtual std::optional<std::uint64_t> issue() = 0;
  // The loop has got the batch (in any order). `skipped` of its items were left out by the
  // consumer.
  virtual void delivered(std::uint64_t ticket, std::uint32_t skipped,
                         const Handover& handover = {}) = 0;

  virtual std::uint64_t epoch() const = 0;
  // The next begin_epoch begins this one, or goes on with it where it is the one that was loaded.
  virtual void set_epoch(std::uint64_t epoch) = 0;
  // Of the epoch that runs, or else of the one that begins next.
  virtual RankState state() const = 0;
  virtual Status load_state(const JobState& state) = 0;
  // Exactly these batches are the epoch that begins next, or what is left of one that was loaded,
  // instead of drawing: any number of them, repeats too. From then on each epoch needs its own.
  virtual Status replay(std::vector<std::vector<ItemId>> batches) = 0;
  virtual EpochReport report() const = 0;
  virtual void close() = 0;  // stops the threads; tickets become kCancelled
};

}  // namespace quiver::cache
