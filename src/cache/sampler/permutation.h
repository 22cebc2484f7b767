// A keyed permutation of 0 … n−1 in constant memory, the order of an epoch; and the keyed random
// streams of the sampler. Everything here is a pure function, the same on every machine, frozen by
// golden values: strict runs must stay bit-identical over releases.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/units.h"

namespace quiver::cache {

// What a permutation is for. Two uses never share a key, so their orders are independent.
// kStrictOrder is also the order that is dealt to the ranks: so a strict epoch is one order over
// all ranks, whatever their number.
enum class Purpose : std::uint32_t { kStrictOrder = 0, kFetchOrder = 1, kDraw = 2, kOwnOrder = 3 };

struct Key {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Key&) const = default;
};

// The key of one purpose in one epoch of a job.
Key derive_key(std::uint64_t seed, std::uint64_t epoch, Purpose purpose);

// A key of a key: for one rank's stream, or one leg of a resumed epoch.
Key derive_key(Key key, std::uint64_t salt);

// The seed of an item's own random state (augmentation) in one epoch: it knows nothing of workers,
// ranks or positions (S13).
std::uint64_t item_seed(std::uint64_t seed, std::uint64_t epoch, ItemId id);

// Swap-or-not (Hoang, Morris, Rogaway: "An Enciphering Scheme Based on a Card Shuffle", CRYPTO
// 2012): works on any n without cycle walking, its inverse is its rounds backwards. Owns its round
// keys, 5 KB. Immutable; any thread may call.
class Permutation {
 public:
  Permutation(Key key, std::uint32_t n);
  std::uint32_t size() const { return n_; }
  std::uint32_t at(std::uint32_t position) const;        // position < n
  std::uint32_t position_of(std::uint32_t value) const;  // the inverse
  // out[i] = at(first + i·stride): three times faster than one by one, for the rounds of several
  // places overlap in the processor. All places < n.
  void fill(std::uint32_t first, std::uint32_t stride, std::span<std::uint32_t> out) const;
  // Turns each value into its place.
  void positions_of(std::span<std::uint32_t> values) const;

  static constexpr int kMostRounds = 192;

 private:
  struct Round {
    std::uint64_t multiplier, addend;  // of the bit that says whether a pair swaps
    std::uint32_t pairing;             // x is paired with pairing − x (mod n)
  };
  std::uint32_t turn(std::uint32_t x, const Round& round) const;

  std::uint32_t n_;
  int rounds_;
  std::array<Round, kMostRounds> round_;
};

// A counter-based random stream: the same key gives the same numbers on every machine.
class Stream {
 public:
  explicit Stream(Key key) : key_(key) {}
  std::uint64_t next();
  std::uint64_t below(std::uint64_t bound);  // uniform, without modulo bias; bound > 0
  double unit();                             // [0, 1)

 private:
  Key key_;
  std::uint64_t counter_ = 0;
};

// The number of marked among `draws` drawn without replacement from `total` with `marked` marked.
// Exact, in integers; time O(draws).
std::uint64_t hypergeometric(Stream& random, std::uint64_t total, std::uint64_t marked,
                             std::uint64_t draws);

}  // namespace quiver::cache
