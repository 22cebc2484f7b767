#include "cache/server/fetch_pool.h"

#include <fmt/format.h>

#include "cache/server/control.h"
#include "cache/server/daemon_limits.h"
#include "io/process.h"

namespace quiver::cache {

FetchPool::FetchPool(int threads, Bytes kept_buffer, Store& store, EventQueue& events)
    : kept_buffer_(kept_buffer), store_(store), events_(events) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, i](std::stop_token stop) {
      io::name_this_thread(fmt::format("fetch-{}", i));
      work(stop);
    });
  }
}

void FetchPool::submit(FetchTask task) {
  tasks_.change([&](auto& tasks) { tasks.push_back(std::move(task)); });
}

void FetchPool::stop() {
  for (auto& thread : threads_) thread.request_stop();
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void FetchPool::work(std::stop_token stop) {
  std::vector<std::byte> buffer;
  while (!stop.stop_requested()) {
    FetchTask task;
    const bool got = tasks_.wait_for(
        stop, std::chrono::seconds(1), [](const auto& tasks) { return !tasks.empty(); },
        [&](auto& tasks) {
          task = std::move(tasks.front());
          tasks.pop_front();
        });
    if (!got) continue;
    if (task.staged) {
      move(task, buffer);
    } else {
      bring(task, buffer, stop);
    }
    if (buffer.size() > kept_buffer_.value) buffer = {};
  }
}

void FetchPool::bring(FetchTask& task, std::vector<std::byte>& buffer, std::stop_token stop) {
  auto item = read(task, buffer, stop);
  // The origin may hold credentials: it goes before anybody is told.
  task.origin.reset();
  if (item &&
      task.unread) {  // known before it is stored, so that its segment is not thought useless
    events_.push([name = task.hash, content = item->hash()](Control& control) {
      control.read_as(name, content);
    });
  }
  auto stored = item ? keep(task, *item, stop) : Result<StoredAt>(item.error());
  const Fetched fetched{task.hash, item ? item->hash() : task.hash, task.length, item.has_value()};
  events_.push([fetched, stored = std::move(stored)](Control& control) {
    control.fetched(fetched, stored);
  });
}

// Room is made for it, but not waited for: the item then goes with its segment, as others do.
void FetchPool::move(const FetchTask& task, std::vector<std::byte>& buffer) {
  if (buffer.size() < task.length.value) buffer.resize(task.length.value);
  const auto bytes = std::span(buffer).first(task.length.value);
  const auto moved = [&]() -> Result<StoredAt> {
    if (Status got = store_.read(*task.staged, bytes); !got) return std::move(got).error();
    const auto item = TRY(VerifiedItem::verify(task.hash, bytes));
    for (int tries = 0;; ++tries) {
      auto at = store_.move(task.lane, item, task.segment_limit);
      if (at || at.error().code != Code::kNoSpace || tries == limits::kMoveTries) return at;
      const Status room = events_.ask(
          [length = task.length](Control& control) -> Status { return control.make_room(length); });
      if (!room) return room.error();
    }
  }();
  events_.push(
      [hash = task.hash, length = task.length, from = task.staged->segment,
       moved = moved.has_value()](Control& control) { control.moved(hash, length, from, moved); });
}

Result<VerifiedItem> FetchPool::read(const FetchTask& task, std::vector<std::byte>& buffer,
                                     std::stop_token stop) {
  if (buffer.size() < task.length.value) buffer.resize(task.length.value);
  const auto bytes = std::span(buffer).first(task.length.value);
  if (Status got = task.origin->read(task.request, bytes, stop); !got) {
    return std::move(got).error();
  }
  if (task.unread) return VerifiedItem::of_unknown(bytes);
  auto item = VerifiedItem::verify(task.content, bytes);
  if (item) return item;
  return error(Code::kCorrupt,
               "object '{}' does not hold what it held when the manifest was made, though its "
               "version is the same; make the manifest anew with 'quiver digest'",
               task.request.key);
}

// Want of room is a slow-down: what was fetched is held in the hand until some of the window has
// been read, and only given up when that takes too long.
Result<StoredAt> FetchPool::keep(const FetchTask& task, const VerifiedItem& item,
                                 std::stop_token stop) {
  Lane lane = task.lane;
  Bytes segment_limit = task.segment_limit;
  if (task.unread) {
    lane = task.unread->lane(item.hash(), task.length);
    segment_limit = lane.pinned ? task.unread->pinned_segment : task.unread->staged_segment;
  }
  for (int tries = 0;; ++tries) {
    auto stored = store_.append(lane, item, segment_limit);
    if (stored || stored.error().code != Code::kNoSpace) return stored;
    const bool urgent = tries >= limits::kUrgentAfter;
    const Status room =
        events_.ask([length = task.length, hash = task.hash, urgent](Control& control) -> Status {
          return urgent ? control.make_room_for(hash, length) : control.make_room(length);
        });
    const bool given_up = !room && room.error().code == Code::kCancelled;
    if (!room && (given_up || tries >= limits::kRoomTries || stop.stop_requested())) {
      return room.error();
    }
    if (room && tries >= 2 * limits::kRoomTries) return stored;
    if (!room) std::this_thread::sleep_for(limits::kRoomPause);
  }
}

}  // namespace quiver::cache
