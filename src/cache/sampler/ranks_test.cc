#include "cache/sampler/ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "cache/sampler/testing/drive.h"
#include "cache/sampler/testing/statistics.h"

namespace quiver::cache {
namespace {

using testing::Order;

std::vector<RankPart> parts_of(const ItemSet& remaining, Shape shape, std::uint64_t seed,
                               std::uint64_t epoch) {
  std::vector<RankPart> parts;
  shape.items = remaining.count();
  for (shape.rank = 0; shape.rank < shape.world; ++shape.rank) {
    parts.push_back(part_of_rank(ItemSet(remaining.size(), true), remaining, shape, seed, epoch));
  }
  return parts;
}

// S2, and "n = 145, world 3, batch 16 deadlocks": every rank makes the same steps of the same
// sizes.
TEST(S2Counts, EveryRankMakesTheSameStepsForAllSmallShapes) {
  for (std::uint32_t n = 0; n <= 200; ++n) {
    for (std::uint32_t world = 1; world <= 5; ++world) {
      for (std::uint32_t batch = 1; batch <= 17; ++batch) {
        for (const auto uneven : {Uneven::kPad, Uneven::kDrop}) {
          const std::uint32_t each = uneven == Uneven::kPad ? (n + world - 1) / world : n / world;
          for (std::uint32_t rank = 0; rank < world; ++rank) {
            Shape shape{n, world, rank, batch, false, uneven};
            ASSERT_EQ(items_of_rank(shape), each) << n << " " << world;  // torch: ceil and floor
            ASSERT_EQ(batches_of_rank(shape), (each + batch - 1) / batch);
            shape.drop_last = true;
            ASSERT_EQ(batches_of_rank(shape), each / batch);
          }
        }
      }
    }
  }
}

TEST(S2Counts, SamplersMakeTheBatchesThatWereAnnounced) {
  for (std::uint32_t n = 0; n <= 40; ++n) {
    const ItemSet all(n, true);
    const ItemSet settled = testing::resident_part(n, 0.5, n);
    for (std::uint32_t code = 0; code < 3 * 4 * 5 * 2; ++code) {
      Shape shape{.items = n, .world = 1 + code / 3 % 4, .batch_size = 1 + code / 12 % 5};
      shape.uneven = static_cast<Uneven>(code % 3);
      shape.drop_last = code / 60 == 1;
      for (shape.rank = 0; shape.rank < shape.world; ++shape.rank) {
        const RankPart part = part_of_rank(all, all, shape, 1, 2);
        const EpochOptions options{.seed = 1,
                                   .epoch = 2,
                                   .rank = shape.rank,
                                   .batch_size = shape.batch_size,
                                   .drop_last = shape.drop_last,
                                   .pads = part.pads};
        ASSERT_EQ(part.items.count() + part.pads.size(), items_of_rank(shape));
        for (const bool strict : {false, true}) {
          auto sampler = strict ? make_strict_sampler(options, part.items, true)
                                : make_substituting_sampler(options, part.items, settled);
          std::uint32_t batches = 0;
          for (; !sampler->done(); ++batches) testing::next_by_own_order(*sampler);
          ASSERT_EQ(batches, batches_of_rank(shape));
        }
      }
    }
  }
}

TEST(S9Parts, AreDisjointAndCoverForAllSmallShapes) {
  for (std::uint32_t n = 0; n <= 60; ++n) {
    for (std::uint32_t world = 1; world <= 8; ++world) {
      for (const auto uneven : {Uneven::kPad, Uneven::kDrop, Uneven::kKeep}) {
        const Shape shape{.world = world, .uneven = uneven};
        ItemSet remaining = testing::resident_part(n, n % 2 == 0 ? 1.1 : 0.6, n);
        ItemSet left = remaining;
        std::size_t pads = 0;
        for (const RankPart& part : parts_of(remaining, shape, 3, n)) {
          part.items.for_each([&](ItemId id) { ASSERT_TRUE(left.erase(id)); });
          pads += part.pads.size();
        }
        const std::uint32_t over = remaining.count() % world;
        ASSERT_EQ(left.count(), uneven == Uneven::kDrop ? over : 0);
        ASSERT_EQ(pads, uneven == Uneven::kPad && over > 0 ? world - over : 0);
      }
    }
  }
}

// torch's DistributedSampler, unshuffled: indices += indices[:padding]; indices[rank::world].
TEST(S9Parts, UnshuffledPartsAreTorchs) {
  const auto parts = parts_of(ItemSet(5, true), {.world = 3, .shuffle = false}, 0, 0);
  EXPECT_EQ(parts[0].items, testing::set_of(5, {0, 3}));
  EXPECT_EQ(parts[1].items, testing::set_of(5, {1, 4}));
  EXPECT_EQ(parts[2].items, testing::set_of(5, {2}));
  EXPECT_EQ(parts[2].pads, std::vector<ItemId>{ItemId(0)});
  const auto many = parts_of(ItemSet(2, true), {.world = 8, .shuffle = false}, 0, 0);
  EXPECT_EQ(many[7].pads, std::vector<ItemId>{ItemId(1)});  // 0 1 | 0 1 0 1 0 1
}

TEST(S9Parts, PadsOfASubsetAreOfTheSubset) {
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    const ItemSet base = testing::resident_part(60, 0.4, epoch);
    ItemSet remaining = base;
    remaining.remove(testing::resident_part(60, 0.5, epoch + 1));
    for (Shape shape{.items = remaining.count(), .world = 7}; shape.rank < 7; ++shape.rank) {
      shape.shuffle = epoch % 2 == 0;
      for (const ItemId id : part_of_rank(base, remaining, shape, 1, epoch).pads) {
        ASSERT_TRUE(base.contains(id));
      }
    }
  }
}

// A pad is one more item drawn at random: no item is favoured.
TEST(S9Parts, PadsAndDropsAreUniform) {
  std::vector<double> padded(11), dropped(11);
  for (std::uint64_t epoch = 0; epoch < 5'000; ++epoch) {
    ItemSet left(11, true);
    for (const auto& part : parts_of(ItemSet(11, true), {.world = 4}, 1, epoch)) {
      for (const ItemId id : part.pads) ++padded[id.value];
    }
    const Shape drop{.world = 4, .uneven = Uneven::kDrop};
    for (const auto& part : parts_of(ItemSet(11, true), drop, 1, epoch)) left.remove(part.items);
    left.for_each([&](ItemId id) { ++dropped[id.value]; });
  }
  EXPECT_GT(testing::uniform_p_value(padded), 0.001);
  EXPECT_GT(testing::uniform_p_value(dropped), 0.001);
}

// How often neighbours in the manifest are of one rank, against chance, over ten epochs.
template <class RankOf>
double neighbours_together(std::uint32_t n, std::uint32_t world, RankOf&& rank_of) {
  double together = 0;
  for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
    for (std::uint32_t id = 1; id < n; ++id) {
      together += rank_of(epoch, id) == rank_of(epoch, id - 1) ? 1 : 0;
    }
  }
  return together / (10.0 * (n - 1)) * world;
}

TEST(S9Parts, AreDrawnAfreshAndKnowNothingOfPlaces) {
  constexpr std::uint32_t kN = 20'000, kWorld = 4;
  std::vector<std::vector<double>> rank_of;
  for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
    rank_of.emplace_back(kN);
    const auto parts = parts_of(ItemSet(kN, true), {.world = kWorld}, 1, epoch);
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
      parts[rank].items.for_each([&](ItemId id) { rank_of.back()[id.value] = rank; });
    }
  }
  std::vector<double> correlations;
  for (std::size_t e = 1; e < rank_of.size(); ++e) {
    correlations.push_back(testing::correlation(rank_of[e - 1], rank_of[e]));
  }
  EXPECT_GT(testing::uncorrelated(correlations, kN), 0.01);
  const auto ours = [&](std::uint64_t epoch, std::uint32_t id) { return rank_of[epoch][id]; };
  EXPECT_NEAR(neighbours_together(kN, kWorld, ours), 1, 0.05);
  // Negative control: parts by home, where neighbours have one home.
  const auto by_home = [](std::uint64_t, std::uint32_t id) { return id / 100 % kWorld; };
  EXPECT_GT(neighbours_together(kN, kWorld, by_home), 3.8);
}

// A strict run that resumes with the same ranks is dealt what it would have had.
TEST(S9Parts, ResumedPartsAreThoseOfTheUninterruptedEpoch) {
  for (const std::uint32_t n : {1u, 7u, 64u, 10'001u}) {
    for (const std::uint32_t world : {2u, 3u, 5u}) {
      const auto whole = parts_of(ItemSet(n, true), {.world = world}, 9, 4);
      const Permutation order(derive_key(9, 4, Purpose::kStrictOrder), n);
      for (std::uint32_t done = 0; done < n; done += world * (1 + n / 20)) {
        ItemSet remaining(n, true);
        for (std::uint32_t i = 0; i < done; ++i) remaining.erase(ItemId(order.at(i)));
        const auto rest = parts_of(remaining, {.world = world}, 9, 4);
        for (std::uint32_t rank = 0; rank < world; ++rank) {
          ItemSet expected = whole[rank].items;
          for (std::uint32_t i = 0; i < done; ++i) expected.erase(ItemId(order.at(i)));
          ASSERT_EQ(rest[rank].items, expected);
          ASSERT_EQ(rest[rank].pads, whole[rank].pads);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quiver::cache
