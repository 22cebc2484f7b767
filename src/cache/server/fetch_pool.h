// FetchPool: the threads that read from origins.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/hash.h"
#include "base/result.h"
#include "cache/origin/origin.h"
#include "cache/server/events.h"
#include "cache/server/pin_rule.h"
#include "cache/store/store.h"

namespace quiver::cache {

// One item to bring: where it is, what it must be, where it goes.
struct FetchTask {
  Sha256 hash;                     // the name of the flight
  Sha256 content;                  // what the bytes must be, unless it is unread
  std::optional<StoredAt> staged;  // it is here, and is to be kept: moved to the lane; no origin
  Bytes length;
  ReadRequest request;
  std::shared_ptr<Origin> origin;
  Lane lane;
  Bytes segment_limit;
  std::optional<PinRule> unread;  // `hash` is but a name: the lane follows from what is read
};

// Owns `threads` named threads, each with one buffer that it reuses up to `kept_buffer` bytes. Each
// reads a task's bytes, compares them with the hash, appends them to the store and tells the
// control thread how it went. What is submitted is bounded by the control thread, in number and in
// bytes. Threads: submit() and waiting() from any; stop() once. Failure: every task ends in exactly
// one Control::fetched or Control::moved, also at a stop (kCancelled).
class FetchPool {
 public:
  FetchPool(int threads, Bytes kept_buffer, Store& store, EventQueue& events);
  ~FetchPool() { stop(); }

  void submit(FetchTask task);
  void stop();  // breaks off what is being read, and joins

 private:
  void work(std::stop_token stop);
  void bring(FetchTask& task, std::vector<std::byte>& buffer, std::stop_token stop);
  void move(const FetchTask& task, std::vector<std::byte>& buffer);
  Result<VerifiedItem> read(const FetchTask& task, std::vector<std::byte>& buffer,
                            std::stop_token stop);
  Result<StoredAt> keep(const FetchTask& task, const VerifiedItem& item, std::stop_token stop);

  const Bytes kept_buffer_;
  Store& store_;
  EventQueue& events_;
  Guarded<std::deque<FetchTask>> tasks_;
  std::vector<std::jthread> threads_;
};

}  // namespace quiver::cache
