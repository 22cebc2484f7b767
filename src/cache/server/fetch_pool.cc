#include "cache/server/fetch_pool.h"

#include <fmt/format.h>

#include "cache/server/control.h"
#include "cache/server/daemon_limits.h"
#include "io/process.h"

namespace quiver::cache {

FetchPool::FetchPool(int threads, Store& store, EventQueue& events)
    : store_(store), events_(events) {
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
    auto item = read(task, buffer, stop);
    // The origin may hold credentials: it goes before anybody is told.
    task.origin.reset();
    auto stored = item ? keep(task, *item, stop) : Result<StoredAt>(item.error());
    events_.push([hash = task.hash, stored = std::move(stored), disk = item.has_value()](
                     Control& control) { control.fetched(hash, stored, disk); });
  }
}

Result<VerifiedItem> FetchPool::read(const FetchTask& task, std::vector<std::byte>& buffer,
                                     std::stop_token stop) {
  if (buffer.size() < task.length.value) buffer.resize(task.length.value);
  const auto bytes = std::span(buffer).first(task.length.value);
  if (Status got = task.origin->read(task.request, bytes, stop); !got) {
    return std::move(got).error();
  }
  auto item = VerifiedItem::verify(task.hash, bytes);
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
  for (int tries = 0;; ++tries) {
    auto stored = store_.append(task.lane, item, task.segment_limit);
    if (stored || stored.error().code != Code::kNoSpace) return stored;
    const Status room = events_.ask(
        [length = task.length](Control& control) -> Status { return control.make_room(length); });
    if (!room && (tries >= limits::kRoomTries || stop.stop_requested())) return room.error();
    if (room && tries >= 2 * limits::kRoomTries) return stored;
    if (!room) std::this_thread::sleep_for(limits::kRoomPause);
  }
}

}  // namespace quiver::cache
