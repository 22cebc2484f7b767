#include "cache/policy/pinned_set.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace quiver::cache {
namespace {

// N items of 100 KB; item i has the content `i / copies`.
struct Dataset {
  explicit Dataset(std::uint32_t n, std::uint32_t copies = 1) {
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::string content = std::to_string(i / copies);
      hashes.push_back(sha256(as_bytes(content)));
      lengths.push_back(Bytes(100'000));
    }
  }
  HashOrder order() const {
    Bytes total;
    for (const Bytes length : lengths) total += length;
    return HashOrder(
        static_cast<std::uint32_t>(hashes.size()),
        [this](ItemId id) -> const Sha256& { return hashes[id.value]; }, total);
  }
  PinnedSet pinned(Bytes limit) const {
    return choose_pinned(
        order(), [this](ItemId id) { return lengths[id.value]; }, limit, limit);
  }
  std::vector<Sha256> hashes;
  std::vector<Bytes> lengths;
};

TEST(PinnedSet, IsAPrefixOfTheHashOrderThatFits) {
  const Dataset data(1000);
  const PinnedSet set = data.pinned(Bytes(25'000'000));
  EXPECT_LE(set.disk, 25'000'000u);
  EXPECT_GE(set.bytes, Bytes(24'000'000));
  bool ended = false;
  const HashOrder order = data.order();
  for (const ItemId id : order.items()) {
    ended = ended || !set.items.contains(id);
    EXPECT_EQ(set.items.contains(id), !ended);
  }
}

TEST(PinnedSet, AShareThatGrowsKeepsAllThatWasPinned) {
  const Dataset data(1000);
  const PinnedSet small = data.pinned(Bytes(20'000'000)), large = data.pinned(Bytes(30'000'000));
  small.items.for_each([&](ItemId id) { EXPECT_TRUE(large.items.contains(id)); });
  EXPECT_GT(large.items.count(), small.items.count());
}

TEST(PinnedSet, CountsEqualContentOnce) {
  const Dataset data(1000, 2);
  const PinnedSet set = data.pinned(Bytes(25'000'000));
  EXPECT_EQ(set.bytes.value, set.items.count() / 2 * 100'000u);
  for (std::uint32_t i = 0; i < 1000; i += 2) {
    EXPECT_EQ(set.items.contains(ItemId(i)), set.items.contains(ItemId(i + 1)));
  }
}

TEST(PinnedSet, PassesOverWhatIsAboveASixteenthOfTheShare) {
  Dataset data(1000);
  const ItemId first = data.order().items().front();
  data.lengths[first.value] = Bytes(2'000'000);
  const PinnedSet set = data.pinned(Bytes(25'000'000));
  EXPECT_FALSE(set.items.contains(first));
  EXPECT_GT(set.items.count(), 200u);
}

TEST(PinnedSet, PassesOverNothingWhenAllFits) {
  EXPECT_EQ(Dataset(5).pinned(Bytes(1'000'000)).items.count(), 5u);
}

TEST(PinnedSet, HoldsEverythingWhenTheNeedIsMet) {
  const Dataset data(300);
  const Bytes need = disk_need(data.order(), [&](ItemId id) { return data.lengths[id.value]; });
  EXPECT_EQ(data.pinned(need).items.count(), 300u);
  EXPECT_LT(data.pinned(need - Bytes(1)).items.count(), 300u);
}

TEST(HashOrder, ABandOfALittleDatasetIsWideEnoughThatItsRoundingDoesNotWeigh) {
  const auto bands = [](Bytes total) {
    const Sha256 hash = sha256(as_bytes("x"));
    const HashOrder order(
        1, [&](ItemId) -> const Sha256& { return hash; }, total);
    std::set<int> all;
    for (int first = 0; first < 256; ++first) {
      Sha256 of{};
      of.bytes[0] = static_cast<std::uint8_t>(first);
      EXPECT_LE(order.band(of), first);
      all.insert(order.band(of));
    }
    return all.size();
  };
  EXPECT_EQ(bands(1024_GiB), 256u);
  EXPECT_EQ(bands(128_MiB), 256u);
  EXPECT_EQ(bands(127_MiB), 128u);
  EXPECT_EQ(bands(50_MiB), 64u);
  EXPECT_EQ(bands(Bytes(0)), 16u);

  Dataset small(500);
  const Bytes need = disk_need(small.order(), [&](ItemId id) { return small.lengths[id.value]; });
  EXPECT_LT(need.value, 500 * 100'000 * 1.01);
}

TEST(HashOrder, FindsAllEntriesOfAContentAndNothingElse) {
  const Dataset data(1000, 4);
  const HashOrder order = data.order();
  const auto found = order.find(data.hashes[401]);
  ASSERT_EQ(found.size(), 4u);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(found[i], ItemId(400 + i));
  EXPECT_TRUE(order.find(sha256(as_bytes("absent"))).empty());
}

}  // namespace
}  // namespace quiver::cache
