// JobBoard: what one rank of a job tells the daemon, in memory that the daemon made and only
// preads.
//
// Two halves that alternate with every begin(), each under a header with the epoch and a sequence
// number, which is written last (release) after the half has been cleared and filled; bits only
// rise within an epoch. (By the parity of the epoch itself, as once planned, a job that resumes an
// earlier epoch would be taken for one that is still in the later.) Per item: settled (was resident
// when the epoch began: draw from it at will) and taken (read into the process: staging may let it
// go). Beside them how the rank fares, whatever its epoch: what was delivered to its loop, how long
// the loop waited, and the rate at which it would take items if it never did. The daemon reads a
// copy by pread, never through a mapping: a client that shrinks or tears it gets nonsense for its
// own job and harms nobody. docs/formats/job_board.md has the layout.
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
  std::uint32_t part = 0;  // how many items were the rank's to take when the epoch began
};

// Items per second that a loop would take if it never waited for bytes.
struct Pace {
  double items_per_second = 0;  // 0: not known well enough to be told
  std::uint32_t steps = 0;      // that it was measured over
  double error = 0;             // its standard error, as a part of it
  bool operator==(const Pace&) const = default;
};

// What a rank's loop got since the job began. Monotone. Each item is in one of the first four.
struct JobCounters {
  std::uint64_t pinned = 0;  // items that the cache kept when their epoch began
  std::uint64_t staged = 0;  // others that were here, fetched ahead for this job or another
  std::uint64_t missed = 0;  // items that the daemon fetched while they were waited for
  std::uint64_t direct = 0;  // items that the process itself read from the origin
  std::uint64_t bytes = 0;   // of all these
  std::uint64_t steps = 0;
  std::uint64_t waited_link_ns = 0;    // by the loop: the bytes were not there
  std::uint64_t waited_decode_ns = 0;  // by the loop: they were, and were not decoded yet

  std::uint64_t items() const { return pinned + staged + missed + direct; }
  bool operator==(const JobCounters&) const = default;
};

// The client's side. One thread writes.
class JobBoardWriter {
 public:
  static Result<JobBoardWriter> map(const io::Fd& fd, std::uint32_t items);
  // Clears the half of this parity, sets `settled` and `taken` from words of N bits, publishes it.
  void begin(const BoardEpoch& epoch, const std::vector<std::uint64_t>& settled,
             const std::vector<std::uint64_t>& taken);
  void take(ItemId id);
  void set_pace(const Pace& pace, std::uint32_t batch_size);
  void set_counters(const JobCounters& counters);
  void end();  // active = false

 private:
  JobBoardWriter() = default;
  io::Mapping memory_;
  std::uint32_t items_ = 0;
  std::uint64_t sequence_ = 0;  // of the half in use; 0 before the first begin
};

// The daemon's side: one consistent enough copy.
struct BoardCopy {
  std::uint64_t sequence = 0;  // of the begin() that it is of
  BoardEpoch epoch;
  Pace pace;
  JobCounters counters;
  std::uint32_t batch_size = 1;
  std::vector<std::uint64_t> settled, taken;  // N bits each
};

Result<io::Fd> make_job_board(std::uint32_t items);
Bytes job_board_memory(std::uint32_t items);
// The newest half; nullopt before the first begin(). kCorrupt for nonsense.
Result<std::optional<BoardCopy>> read_job_board(io::Files& files, int fd, std::uint32_t items);
// The taken words of an earlier begin(), as its epoch left them; nullopt when a later one has
// overwritten them.
Result<std::optional<std::vector<std::uint64_t>>> read_taken(io::Files& files, int fd,
                                                             std::uint32_t items,
                                                             std::uint64_t sequence);

}  // namespace quiver::cache
