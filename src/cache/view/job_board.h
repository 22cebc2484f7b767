// JobBoard: what one rank of a job tells the daemon, in memory that the daemon made and only
// preads.
//
// Two halves that alternate with every begin(), each under a header with the epoch and a sequence
// number, which is written last (release) after the half has been cleared and filled; bits only
// rise within an epoch. (By the parity of the epoch itself, as once planned, a job that resumes an
// earlier epoch would be taken for one that is still in the later.) Per item: settled (was resident
// when the epoch began: draw from it at will) and taken (read into the process: staging may let it
// go). Beside them the rank's place: steps taken, and the rate at which it would take items if it
// never waited. The daemon reads a copy by pread, never through a mapping: a client that shrinks or
// tears it gets nonsense for its own job and harms nobody. docs/formats/job_board.md has the
// layout.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/units.h"
#include "cache/view/view.h"
#include "io/file.h"
#include "io/memory.h"

namespace quiver::cache {

// What the job wants in this epoch.
struct BoardEpoch {
  std::uint64_t epoch = 0;
  std::uint64_t order_seed = 0;  // key of its order: derive_key(order_seed, epoch, …)
  bool strict = false;           // the order is the strict permutation, else a fetch order
  bool shuffled = true;          // strict and not shuffled: ascending
  bool active = true;            // false: the epoch is over and nothing more is wanted
  bool listed = false;           // the order is a list that only the rank knows: it asks for items
  std::uint32_t world = 1, rank = 0;
};

// The client's side. One thread writes.
class JobBoardWriter {
 public:
  static Result<JobBoardWriter> map(const io::Fd& fd, std::uint32_t items);
  // Clears the half of this parity, sets `settled` and `taken` from words of N bits, publishes it.
  void begin(const BoardEpoch& epoch, const std::vector<std::uint64_t>& settled,
             const std::vector<std::uint64_t>& taken);
  void take(ItemId id);
  void set_pace(double items_per_second, std::uint32_t batch_size);
  void end();  // active = false

 private:
  JobBoardWriter() = default;
  io::Mapping memory_;
  std::uint32_t items_ = 0;
  std::uint64_t sequence_ = 0;  // of the half in use; 0 before the first begin
};

// The daemon's side: one consistent enough copy.
struct BoardCopy {
  BoardEpoch epoch;
  double items_per_second = 0;
  std::uint32_t batch_size = 1;
  std::vector<std::uint64_t> settled, taken;  // N bits each
};

Result<io::Fd> make_job_board(std::uint32_t items);
Bytes job_board_memory(std::uint32_t items);
// The newest half; nullopt before the first begin(). kCorrupt for nonsense.
Result<std::optional<BoardCopy>> read_job_board(io::Files& files, int fd, std::uint32_t items);

}  // namespace quiver::cache
