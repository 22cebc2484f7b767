// The memory that a feed's owner shares with its workers: a slot per ticket, and blocks of batches.
//
//   header | slots, one per ticket modulo their number | blocks, allocated by the owner alone
//
// A block is a header, one row per item, and the items' bytes. It carries a count of references
// that any process may lower; the owner uses a block again when it is zero. A reader takes no lock
// of any process, so it works in whatever state a fork found its parent.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "base/units.h"
#include "io/file.h"
#include "io/memory.h"

namespace quiver::cache {

// kSent: a worker passes the batch to the loop's process. kEnded: delivered there, or given up.
enum class Phase : std::uint32_t { kIdle, kWaiting, kReady, kTaken, kSent, kEnded, kClosed };

// What a ticket stands for, as far as it is known. The word (the ticket's low 28 bits and its
// phase) is the futex that a reader waits on; the other fields are written before it says kReady.
// The slot owns one reference to the block while it says kReady or kSent, and no ticket passes
// twice through either.
struct Slot {
  std::atomic<std::uint32_t> word;
  std::atomic<std::uint32_t> step;
  std::atomic<std::uint64_t> epoch;
  std::atomic<std::uint64_t> block;  // its offset in the memory
  char padding[40];
};
static_assert(sizeof(Slot) == 64);

struct BlockHeader {
  std::atomic<std::uint32_t> references;
  std::uint32_t count;  // of rows
  std::uint64_t capacity;
};

struct Row {
  std::uint64_t offset;  // of the bytes, from the start of the block
  std::uint64_t length;
  std::uint64_t room;  // bytes that the item has; a failed one keeps its error's text there
  std::uint32_t id;
  std::uint16_t code;
  std::uint8_t tier;
  std::uint8_t failed;
};

// The mapping, in any process. Lives as long as anybody holds a block of it. Any thread may use it.
class Arena {
 public:
  // In the owner. `slots`: the most tickets outstanding at a time.
  static Result<std::shared_ptr<Arena>> create(std::uint32_t slots);
  static Result<std::shared_ptr<Arena>> attach(const io::Fd& shared);

  const io::Fd& fd() const { return fd_; }
  std::uint64_t blocks_begin() const;
  std::uint64_t size() const { return memory_.size(); }
  int owner_pid() const;
  bool closed() const;
  std::uint64_t identity() const;  // random: no other arena has it

  Slot& slot(std::uint64_t ticket) const;
  BlockHeader& block(std::uint64_t offset) const;
  Row* rows(std::uint64_t block) const;
  MutableByteSpan bytes(std::uint64_t block, const Row& row) const;  // all of its room
  // False where nobody holds the block. A caller that does not hold it learns by a look at the slot
  // afterwards whether it is still the ticket's; until then it is merely not used again.
  bool add_reference(std::uint64_t block) const;
  void drop_reference(std::uint64_t block) const;

  // The owner's moves on a ticket, each by one thread at a time.
  void issue(std::uint64_t ticket);  // gives up what the slot held before
  // Hands over one reference to the block.
  void publish(std::uint64_t ticket, std::uint64_t epoch, std::uint32_t step, std::uint64_t block);
  void end(std::uint64_t ticket);  // it has been delivered or is given up: the slot lets go
  void close();                    // ends all waiting
  // Whether the slot that `ticket` would have serves another one, whose batch is waited for or is
  // on its way to the loop.
  bool occupied(std::uint64_t ticket) const;

  // For readers: (word's ticket is `ticket`) → its phase; kIdle: not issued yet; nullopt: long
  // gone.
  static std::optional<Phase> phase_of(std::uint32_t word, std::uint64_t ticket);
  static std::uint32_t word_of(std::uint64_t ticket, Phase phase);

 private:
  struct Header;
  Header& header() const;

  io::Fd fd_;
  io::Mapping memory_;
};

// Bytes of a block for items of these rooms, and the rows' offsets in it.
struct BlockPlan {
  std::uint64_t size = 0;
  std::vector<Row> rows;
};
BlockPlan plan_block(const std::vector<std::uint64_t>& lengths);

// The owner's side: which ranges are blocks. One thread at a time.
// Keeps at most `limit` bytes of free blocks' pages; what exceeds it goes back to the system as
// soon as nobody refers to it. Blocks in use may exceed it: they are the consumer's memory.
class BlockAllocator {
 public:
  BlockAllocator(std::shared_ptr<Arena> arena, Bytes limit)
      : arena_(std::move(arena)), limit_(limit.value), end_(arena_->blocks_begin()) {}
  // A block of at least `size` bytes with one reference. kNoSpace: the address space is used up.
  Result<std::uint64_t> allocate(std::uint64_t size);
  // Releases pages of free blocks until what is touched is within the limit.
  void trim();
  Bytes touched() const { return Bytes(touched_); }
  std::size_t blocks() const { return known_.size(); }

 private:
  struct Known {
    std::uint64_t offset, capacity;
    bool touched;
  };
  bool is_free(const Known& known) const;
  std::uint64_t use(Known& known);

  std::shared_ptr<Arena> arena_;
  const std::uint64_t limit_;
  std::uint64_t end_;  // no block begins at or after it
  std::uint64_t touched_ = 0;
  std::vector<Known> known_;
};

}  // namespace quiver::cache
