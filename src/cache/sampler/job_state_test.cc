#include "cache/sampler/job_state.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <iterator>

#include "cache/sampler/permutation.h"

namespace quiver::cache {
namespace {

RankState example() {
  RankState state(100);
  state.dataset = "0123456789abcdef";
  state.seed = 42, state.epoch = 3, state.step = 2;
  state.world = 2, state.rank = 1, state.batch_size = 4, state.pads = 1;
  state.mode = "substitute";
  for (const std::uint32_t id : {3u, 17u, 18u, 19u, 40u, 63u, 64u, 99u}) {
    state.delivered.insert(ItemId(id));
  }
  for (std::uint32_t id = 20; id < 30; ++id) state.delivered_before.insert(ItemId(id));
  DeliveryChain chain;
  chain.add(3, 0, 1, {ItemId(3), ItemId(17)});
  state.chain = chain.value();
  return state;
}

void expect_same(const RankState& a, const RankState& b) {
  EXPECT_EQ(a.dataset, b.dataset);
  EXPECT_EQ(std::tie(a.version, a.items, a.seed, a.epoch, a.step, a.world, a.rank, a.batch_size),
            std::tie(b.version, b.items, b.seed, b.epoch, b.step, b.world, b.rank, b.batch_size));
  EXPECT_EQ(a.mode, b.mode);
  EXPECT_EQ(a.pads, b.pads);
  EXPECT_EQ(a.chain, b.chain);
  EXPECT_EQ(a.delivered, b.delivered);
  EXPECT_EQ(a.delivered_before, b.delivered_before);
}

std::string with_right_checksum(std::string bytes) {
  const auto body = std::string_view(bytes).substr(0, bytes.size() - 4);
  const std::uint32_t sum = checksum32(as_bytes(body));
  for (std::size_t i = 0; i < 4; ++i) bytes[body.size() + i] = static_cast<char>(sum >> (8 * i));
  return bytes;
}

TEST(ItemSetTest, CountsAndKeepsBitsBeyondItsEndClear) {
  for (const std::uint32_t n : {0u, 1u, 63u, 64u, 65u, 1000u}) {
    ItemSet full(n, true);
    EXPECT_EQ(full.count(), n);
    std::uint32_t next = 0;
    full.for_each([&](ItemId id) { EXPECT_EQ(id.value, next++); });
    EXPECT_EQ(next, n);
    EXPECT_EQ(*ItemSet::from_words(n, full.words()), full);
    EXPECT_FALSE(ItemSet::from_words(n + 64, full.words()));
    for (std::uint32_t id = 0; id < n; ++id) {
      EXPECT_FALSE(full.insert(ItemId(id)));
      EXPECT_TRUE(full.erase(ItemId(id)));
      EXPECT_FALSE(full.erase(ItemId(id)));
    }
    EXPECT_EQ(full, ItemSet(n));
  }
  EXPECT_EQ(ItemSet::from_words(3, {8}).error().code, Code::kCorrupt);
}

TEST(ItemSetTest, UnionAndDifference) {
  ItemSet a(70), b(70);
  a.insert(ItemId(1)), a.insert(ItemId(69)), b.insert(ItemId(69)), b.insert(ItemId(5));
  ItemSet both = a;
  both.add(b);
  EXPECT_EQ(both.count(), 3u);
  both.remove(a);
  EXPECT_EQ(both.count(), 1u);
  EXPECT_TRUE(both.contains(ItemId(5)));
}

TEST(RankStateTest, GoldenBytes) {
  const std::string path = QUIVER_SOURCE_DIR "/tests/vectors/rank_state_v1.bin";
  std::ifstream in(path, std::ios::binary);
  ASSERT_TRUE(in) << path;
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(encode(example()), golden);
  const auto state = decode_rank_state(golden);
  ASSERT_TRUE(state);
  expect_same(*state, example());
}

TEST(RankStateTest, RoundTripsWhateverTheBitmaps) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    const auto n = *rc::gen::inRange<std::uint32_t>(0, 2000);
    const auto density = *rc::gen::inRange<std::uint64_t>(0, 101);
    RankState state(n);
    state.seed = seed, state.mode = "strict";
    Stream random(derive_key(Key{seed, 1}, n));
    for (std::uint32_t i = 0; i < n; ++i) {
      if (random.below(100) < density) state.delivered.insert(ItemId(i));
      if (i < density) state.delivered_before.insert(ItemId(i));
    }
    const std::string bytes = encode(state);
    const auto back = decode_rank_state(bytes);
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->delivered == state.delivered);
    RC_ASSERT(back->delivered_before == state.delivered_before);
    RC_ASSERT(bytes.size() <= 110 + 2 * ((n + 7) / 8));
  }));
}

TEST(RankStateTest, IsCompact) {
  RankState state(10'000'000);
  state.mode = "strict";
  state.delivered = ItemSet(10'000'000, true);
  EXPECT_LT(encode(state).size(), 120u);
}

TEST(RankStateTest, AnyFlippedBitAndAnyCutIsRefused) {
  const std::string bytes = encode(example());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string bad = bytes;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    const auto state = decode_rank_state(bad);
    ASSERT_FALSE(state);
    const bool version = bit / 8 >= 4 && bit / 8 < 8;
    EXPECT_EQ(state.error().code, version ? Code::kVersion : Code::kCorrupt);
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_rank_state(bytes.substr(0, size)));
  }
}

TEST(RankStateTest, WrongContentUnderARightChecksumIsRefused) {
  const std::string good = encode(example());
  const auto refused = [&](std::size_t at, std::string_view with) {
    std::string bad = good;
    bad.replace(at, with.size(), with);
    const auto state = decode_rank_state(with_right_checksum(bad));
    ASSERT_FALSE(state) << at;
    EXPECT_EQ(state.error().code, Code::kCorrupt);
  };
  refused(8, "\xff\xff\xff\xff");                 // items beyond the limit
  refused(8, std::string_view("\x10\0\0\0", 4));  // fewer items than the bitmaps have
  refused(36, "\x02");                            // rank 2 of 2
  refused(40, std::string_view("\0\0\0\0", 4));   // batches of none
  refused(48, "\x02");                            // an unknown mode
  EXPECT_FALSE(decode_rank_state(with_right_checksum(good + "x")));
}

RankState part(std::uint32_t rank, std::uint32_t world, std::vector<std::uint32_t> ids) {
  RankState state(10);
  state.dataset = "d", state.mode = "strict", state.seed = 1, state.epoch = 2, state.step = 1;
  state.world = world, state.rank = rank;
  state.delivered_before.insert(ItemId(9));
  for (const std::uint32_t id : ids) state.delivered.insert(ItemId(id));
  return state;
}

std::string refusal(const std::vector<RankState>& parts) {
  const auto merged = merge(parts);
  if (merged) return "merged";
  EXPECT_EQ(merged.error().code, Code::kInvalid);
  return merged.error().message;
}

TEST(MergeTest, IsTheUnionOfAllRanks) {
  const auto state = merge({part(1, 2, {4, 5}), part(0, 2, {1})});
  ASSERT_TRUE(state);
  EXPECT_EQ(state->delivered.count(), 4u);
  EXPECT_TRUE(state->delivered.contains(ItemId(9)));
  EXPECT_EQ(state->epoch, 2u);
  EXPECT_EQ(state->step, 1u);
  EXPECT_EQ(state->items, 10u);
}

TEST(MergeTest, TheChainOfOneRankIsTheJobs) {
  RankState alone = part(0, 1, {1}), first = part(0, 2, {1}), second = part(1, 2, {4});
  alone.chain = first.chain = second.chain = sha256({});
  EXPECT_EQ(merge({alone})->chain, sha256({}));
  EXPECT_EQ(merge({first, second})->chain, Sha256{});
}

TEST(MergeTest, SaysWhichPartIsWrong) {
  const auto says = [](const std::string& text, std::string_view what) {
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  says(refusal({}), "every rank");
  says(refusal({part(0, 2, {})}), "rank 1 of 2 is missing");
  says(refusal({part(1, 2, {})}), "rank 0 of 2 is missing");
  says(refusal({part(0, 4'000'000'000u, {})}), "rank 1 of 4000000000 is missing");
  says(refusal({part(0, 2, {}), part(0, 2, {})}), "rank 0 is there twice");
  const auto differing = [&](auto&& change) {
    auto other = part(1, 2, {});
    change(other);
    return refusal({part(0, 2, {}), other});
  };
  says(differing([](RankState& s) { s.step = 2; }), "step differs");
  says(differing([](RankState& s) { s.epoch = 3; }), "epoch differs");
  says(differing([](RankState& s) { s.seed = 3; }), "seed differs");
  says(differing([](RankState& s) { s.world = 3; }), "world size differs");
  says(differing([](RankState& s) { s.dataset = "e"; }), "dataset differs");
  says(differing([](RankState& s) { s.mode = "substitute"; }), "mode differs");
  says(differing([](RankState& s) { s.delivered_before.insert(ItemId(8)); }), "history");
  says(refusal({part(0, 2, {4}), part(1, 2, {4})}), "delivered twice");
  auto padded = part(1, 2, {4});
  padded.pads = 1;
  EXPECT_TRUE(merge({part(0, 2, {4}), padded}));
}

}  // namespace
}  // namespace quiver::cache
