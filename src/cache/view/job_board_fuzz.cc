// Whatever a client leaves in its job board, the daemon reads a copy or an error.
#include <cstdlib>

#include "cache/view/job_board.h"

// The first two bytes are the number of items, the rest is the memory.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quiver;
  if (size < 3) return 0;
  const std::uint32_t items = data[0] | std::uint32_t{data[1]} << 8;
  io::RealFiles files;
  const auto memory = std::as_bytes(std::span(data + 2, size - 2));
  const auto fd = io::make_client_memory("fuzz", memory.size());
  if (!fd || !files.pwrite(fd->get(), memory, 0)) return 0;
  const auto copy = cache::read_job_board(files, fd->get(), items);
  if (copy && copy->has_value()) {
    const auto& board = **copy;
    if (board.taken.size() != (items + 63u) / 64 || board.epoch.rank >= board.epoch.world ||
        !(board.pace.items_per_second >= 0) || !(board.pace.error >= 0) ||
        board.epoch.part > items || board.batch_size == 0) {
      std::abort();
    }
    const auto taken = cache::read_taken(files, fd->get(), items, board.sequence);
    if (!taken || **taken != board.taken) std::abort();
  }
  return 0;
}
