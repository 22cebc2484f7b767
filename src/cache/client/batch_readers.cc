#include "cache/client/batch_readers.h"

#include <algorithm>
#include <cstring>

#include "io/process.h"

namespace quiver::cache {

void BatchReaders::add(std::shared_ptr<Reading> reading) {
  queue_.change([&](Queue& q) { q.push_back(std::move(reading)); });
}

void BatchReaders::fail(const std::shared_ptr<Reading>& reading, const Error& why) {
  for (std::size_t i = 0; i < reading->items.size(); ++i) {
    Row& row = shared_.arena->rows(reading->block)[i];
    fail_row(row, shared_.arena->bytes(reading->block, row), why);
  }
  finish(reading);
}

void BatchReaders::grow(std::uint32_t threads) {
  while (threads_.size() < threads) {
    threads_.emplace_back([this, n = threads_.size()](std::stop_token stop) {
      io::name_this_thread(fmt::format("qv-read-{}", n));
      run(stop);
    });
  }
}

void BatchReaders::stop() {
  for (auto& thread : threads_) thread.request_stop();
  threads_.clear();
}

void BatchReaders::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    std::shared_ptr<Reading> reading;
    queue_.wait_for(
        stop, std::chrono::hours(1), [](const Queue& q) { return !q.empty(); },
        [&](Queue& q) {
          reading = q.front();
          // Whoever claims the last item takes the batch from the queue.
          if (reading->next.load() + 1 >= reading->items.size()) q.pop_front();
        });
    if (!reading) continue;
    const auto count = static_cast<std::uint32_t>(reading->items.size());
    const std::stop_source& given_up = reading->plan->given_up;
    const std::stop_callback ends_with_us(stop, [&] { given_up.request_stop(); });
    for (;;) {
      const std::uint32_t index = reading->next.fetch_add(1);
      if (index >= count) break;
      if (!given_up.stop_requested()) {
        if (index == 0) shared_.dataset->want(reading->asked_late);
        read_item(*reading, index, given_up.get_token());
      }
      if (reading->left.fetch_sub(1) == 1) finish(reading);
    }
    queue_.with([&](Queue& q) {
      if (!q.empty() && q.front() == reading) q.pop_front();
    });
  }
}

void BatchReaders::read_item(Reading& reading, std::uint32_t index, std::stop_token stop) {
  Row& row = shared_.arena->rows(reading.block)[index];
  const MutableByteSpan room = shared_.arena->bytes(reading.block, row);
  const auto tier = shared_.dataset->read(reading.items[index], room.first(row.length), stop);
  if (tier) {
    row.tier = static_cast<std::uint8_t>(*tier);
    ++reading.tiers[row.tier];
    reading.content += row.length;
    return;
  }
  fail_row(row, room, tier.error());
}

void BatchReaders::fail_row(Row& row, MutableByteSpan room, const Error& why) {
  row.failed = 1;
  row.code = static_cast<std::uint16_t>(why.code);
  row.length = std::min<std::uint64_t>(row.room, why.message.size());
  std::memcpy(room.data(), why.message.data(), row.length);
}

void BatchReaders::finish(const std::shared_ptr<Reading>& reading) {
  // Failed ones too: staging may let go of what cannot be had.
  shared_.board.with([&](Board& board) {
    if (!board.taken || board.run != reading->plan->serial) return;
    for (const ItemId id : reading->items) {
      if (board.taken->insert(id) && board.writer) board.writer->take(id);
    }
  });
  const Arena& arena = *shared_.arena;
  const Instant now = shared_.environment.clock.now();
  // Whoever waits for the batch waits in the arena.
  shared_.state.with([&](FeedState& s) {
    if (s.plan != reading->plan || s.closed) return arena.drop_reference(reading->block);
    Entry& entry = s.entries[reading->step];
    entry.ready = true;
    if (!entry.ticket) return;
    s.ready_at[*entry.ticket % s.ready_at.size()] = {*entry.ticket, now};
    shared_.arena->publish(*entry.ticket, s.plan->epoch, reading->step, reading->block);
  });
}

}  // namespace quiver::cache
