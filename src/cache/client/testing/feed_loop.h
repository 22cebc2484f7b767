// A training loop over a feed, as the tests of feeds have it.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "cache/client/feed.h"
#include "cache/client/testing/memory_dataset.h"
#include "io/http.h"

namespace quiver::cache {

class NoNetwork final : public io::HttpTransport {
 public:
  Result<io::HttpResponse> perform(const io::HttpRequest&, const io::BodySink&,
                                   std::stop_token) override {
    return error(Code::kUnreachable, "there is no network in this test");
  }
};

class NoLog final : public LogSink {
 public:
  void write(LogLevel, std::string_view) override {}
};

inline io::RealFiles files;
inline NoNetwork http;
inline RealClock real_clock;
inline NoLog quiet;
inline const Environment kEnvironment{files, http, real_clock, quiet};

inline std::unique_ptr<Feed> make_feed(std::shared_ptr<Dataset> dataset, FeedOptions options) {
  return Feed::create(std::move(dataset), std::move(options), kEnvironment).value();
}

using Ids = std::vector<ItemId>;

// A loop with some tickets outstanding, as torch's workers have them.
struct Loop {
  explicit Loop(Feed& f, std::uint32_t outstanding = 3) : feed(f), limit(outstanding) {}

  void fill() {
    while (tickets.size() < limit) {
      const auto ticket = feed.issue();
      if (!ticket) return;
      tickets.push_back(*ticket);
    }
  }
  // The next batch, checked byte by byte; nullopt at the end of the epoch.
  std::optional<Ids> next() {
    fill();
    if (tickets.empty()) return std::nullopt;
    const std::uint64_t ticket = tickets.front();
    tickets.pop_front();
    const Instant began = real_clock.now();
    auto view = feed.reader()->wait(ticket, std::chrono::seconds(20));
    if (!view) {
      ADD_FAILURE() << view.error().message;
      return std::nullopt;
    }
    const Duration waited = real_clock.now() - began;
    Ids ids;
    for (const FedItem& item : view->items) {
      ids.push_back(item.id);
      if (item.failed) continue;
      EXPECT_EQ(as_text(item.data), content_of(item.id.value));
    }
    feed.delivered(ticket, 0, {.waited = waited});
    return ids;
  }
  std::vector<Ids> rest() {
    std::vector<Ids> batches;
    while (auto batch = next()) batches.push_back(*batch);
    return batches;
  }

  Feed& feed;
  std::size_t limit;
  std::deque<std::uint64_t> tickets;
};

inline std::vector<Ids> run_epoch(Feed& feed) {
  EXPECT_TRUE(feed.begin_epoch());
  return Loop(feed).rest();
}

inline void count(const std::vector<Ids>& batches, std::vector<int>& times) {
  for (const Ids& batch : batches) {
    for (const ItemId id : batch) ++times[id.value];
  }
}

inline FeedOptions options_of(std::uint32_t batch, bool shuffle = true) {
  FeedOptions options;
  options.batch_size = batch;
  options.shuffle = shuffle;
  options.memory_limit = 16_MiB;
  return options;
}

}  // namespace quiver::cache
