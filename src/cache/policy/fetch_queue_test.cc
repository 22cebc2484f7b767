#include "cache/policy/fetch_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace quiver::cache {
namespace {

using Kind = FetchQueue::Kind;

FetchQueue::Entry entry(const std::string& dataset, Kind kind, std::uint8_t number,
                        std::uint64_t rider = 0) {
  FetchQueue::Entry out{dataset, rider, kind, {}};
  out.hash.bytes[0] = number;
  return out;
}

TEST(FetchQueue, OfOneOrderWhatIsWaitedForGoesFirstAndEachInItsOrder) {
  FetchQueue queue;
  queue.push_back(entry("a", Kind::kStaged, 1));
  queue.push_back(entry("a", Kind::kDirected, 2));
  queue.push_back(entry("a", Kind::kDirected, 3));
  queue.push_front(entry("a", Kind::kStaged, 4));
  EXPECT_EQ(queue.size(Kind::kDirected), 2u);
  EXPECT_EQ(queue.staged_of("a"), 2u);
  for (const std::uint8_t number : {2, 3, 4, 1}) EXPECT_EQ(queue.pop()->hash.bytes[0], number);
  EXPECT_FALSE(queue.pop());
  EXPECT_EQ(queue.size(), 0u);
}

// Bytes that each dataset is given of `total`, when it always has so many fetches queued.
std::map<std::string, std::uint64_t> serve(FetchQueue& queue, std::uint64_t total,
                                           const std::map<std::string, std::uint64_t>& lengths) {
  std::map<std::string, std::uint64_t> given;
  for (const auto& [dataset, length] : lengths) {
    for (int k = 0; k < 20; ++k) queue.push_back(entry(dataset, Kind::kStaged, 0));
  }
  for (std::uint64_t sum = 0; sum < total;) {
    const auto next = queue.pop();
    const std::uint64_t length = lengths.at(next->dataset);
    queue.charge(*next, Bytes(length));
    queue.push_back(*next);
    given[next->dataset] += length;
    sum += length;
  }
  return given;
}

TEST(FetchQueue, DatasetsShareByBytesHoweverLongTheirItemsAre) {
  EXPECT_TRUE(rc::check([](const std::vector<std::uint16_t>& all) {
    std::map<std::string, std::uint64_t> lengths;
    std::uint64_t longest = 1;
    for (const std::uint16_t length : all) {
      lengths["d" + std::to_string(lengths.size())] = length + 1u;
      longest = std::max<std::uint64_t>(longest, length + 1u);
    }
    if (lengths.empty()) return;
    FetchQueue queue;
    const std::uint64_t each = longest * 20;
    for (const auto& [dataset, bytes] : serve(queue, each * lengths.size(), lengths)) {
      RC_ASSERT(bytes + 2 * longest >= each);
      RC_ASSERT(bytes <= each + 2 * longest);
    }
  }));
}

TEST(FetchQueue, WhoWantsLittleGetsItAtOnceAndAPauseSavesNothing) {
  FetchQueue queue;
  serve(queue, 10'000, {{"busy", 100}});
  queue.push_back(entry("rare", Kind::kStaged, 7));
  const auto first = queue.pop();
  EXPECT_EQ(first->dataset, "rare");
  queue.charge(*first, Bytes(100));
  // It had nothing queued for 10,000 bytes of the other, and now has no right to as many.
  for (int k = 0; k < 20; ++k) queue.push_back(entry("rare", Kind::kStaged, 7));
  int rare = 0;
  for (int k = 0; k < 10; ++k) {
    const auto next = queue.pop();
    rare += next->dataset == "rare";
    queue.charge(*next, Bytes(100));
  }
  EXPECT_NEAR(rare, 5, 1);
}

TEST(FetchQueue, RidersAndTheOrderOfTheirDatasetGoOnSideBySide) {
  FetchQueue queue;
  const auto add = [&](const std::string& dataset, Kind kind, std::uint64_t rider, int count) {
    for (int k = 0; k < count; ++k) queue.push_back(entry(dataset, kind, 0, rider));
  };
  add("a", Kind::kStaged, 0, 100);
  add("a", Kind::kDirected, 2, 100);
  add("a", Kind::kDirected, 3, 100);
  add("a", Kind::kDirected, 4, 5);
  add("b", Kind::kStaged, 0, 200);
  std::map<std::pair<std::string, std::uint64_t>, int> given;
  for (int k = 0; k < 160; ++k) {
    const auto next = queue.pop();
    ++given[{next->dataset, next->rider}];
    queue.charge(*next, Bytes(100));
  }
  EXPECT_NEAR((given[{"b", 0}]), 80, 1);
  EXPECT_NEAR((given[{"a", 0}]), 20, 1);
  EXPECT_EQ((given[{"a", 4}]), 5) << "who wants little gets all of it";
  EXPECT_NEAR((given[{"a", 2}]), 27, 2);
  EXPECT_NEAR((given[{"a", 3}]), 27, 2);
}

}  // namespace
}  // namespace quiver::cache
