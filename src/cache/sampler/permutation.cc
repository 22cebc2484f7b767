#include "cache/sampler/permutation.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace quiver::cache {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
// Domains of the mixers: the first digits of pi, so that nobody has to wonder how they were chosen.
constexpr std::uint64_t kKeyLow = 0x243f6a8885a308d3, kKeyHigh = 0x13198a2e03707344;
constexpr std::uint64_t kItemSeed = 0xa4093822299f31d0;

// The finaliser of splitmix64: a bijection in which each input bit turns half of the output bits.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::uint64_t absorb(std::uint64_t state, std::uint64_t word) {
  return mix(mix(state ^ word) + kGolden);
}

}  // namespace

Key derive_key(std::uint64_t seed, std::uint64_t epoch, Purpose purpose) {
  const auto lane = [&](std::uint64_t state) {
    return absorb(absorb(absorb(state, seed), epoch), static_cast<std::uint64_t>(purpose));
  };
  return Key{lane(kKeyHigh), lane(kKeyLow)};
}

Key derive_key(Key key, std::uint64_t salt) {
  return Key{absorb(key.high, salt), absorb(key.low, salt)};
}

std::uint64_t item_seed(std::uint64_t seed, std::uint64_t epoch, ItemId id) {
  return absorb(absorb(absorb(kItemSeed, seed), epoch), id.value);
}

std::uint64_t Stream::next() {
  return mix(mix(key_.low + kGolden * ++counter_) ^ key_.high);
}

std::uint64_t Stream::below(std::uint64_t bound) {
  CHECK(bound > 0);
  // Lemire, "Fast Random Integer Generation in an Interval", 2019.
  __extension__ using Wide = unsigned __int128;
  Wide product = static_cast<Wide>(next()) * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t reject_below = -bound % bound;
    while (static_cast<std::uint64_t>(product) < reject_below) {
      product = static_cast<Wide>(next()) * bound;
    }
  }
  return static_cast<std::uint64_t>(product >> 64);
}

double Stream::unit() {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

std::uint64_t hypergeometric(Stream& random, std::uint64_t total, std::uint64_t marked,
                             std::uint64_t draws) {
  CHECK(marked <= total && draws <= total);
  if (draws > total / 2) return marked - hypergeometric(random, total, marked, total - draws);
  std::uint64_t left = marked;
  for (std::uint64_t i = 0; i < draws && left > 0; ++i) {
    if (random.below(total - i) < left) --left;
  }
  return marked - left;
}

// Each round pairs x with pairing − x and swaps the pair or not by one bit of a pairwise
// independent hash (multiply, add, top bit) of the pair: a product of transpositions, so its own
// inverse. A quarter as many rounds pass the statistical tests, a sixth does not: a margin of four.
Permutation::Permutation(Key key, std::uint32_t n)
    : n_(n), rounds_(std::max(48, 6 * static_cast<int>(std::bit_width(n)))) {
  static_assert(6 * 32 <= kMostRounds);
  if (n == 0) return;
  Stream random(key);
  for (int i = 0; i < rounds_; ++i) {
    Round& round = round_[static_cast<std::size_t>(i)];
    round.multiplier = random.next();
    round.addend = random.next();
    round.pairing = static_cast<std::uint32_t>(random.below(n));
  }
}

// Without branches: the bits are random, and a mispredicted branch costs more than a round.
inline std::uint32_t Permutation::turn(std::uint32_t x, const Round& round) const {
  const std::uint32_t wrap = n_ & -static_cast<std::uint32_t>(round.pairing < x);
  const std::uint32_t partner = round.pairing - x + wrap;
  const std::uint64_t hash = std::max(x, partner) * round.multiplier + round.addend;
  const std::uint32_t swap = -static_cast<std::uint32_t>(hash >> 63);
  return x ^ ((x ^ partner) & swap);
}

std::uint32_t Permutation::at(std::uint32_t position) const {
  CHECK(position < n_);
  std::uint32_t x = position;
  for (const Round& round : std::span(round_.data(), static_cast<std::size_t>(rounds_))) {
    x = turn(x, round);
  }
  return x;
}

std::uint32_t Permutation::position_of(std::uint32_t value) const {
  CHECK(value < n_);
  std::uint32_t x = value;
  for (int i = rounds_; i-- > 0;) x = turn(x, round_[static_cast<std::size_t>(i)]);
  return x;
}

namespace {
constexpr std::size_t kLanes = 8;
}

void Permutation::fill(std::uint32_t first, std::uint32_t stride,
                       std::span<std::uint32_t> out) const {
  CHECK(out.empty() || first + (out.size() - 1) * std::uint64_t{stride} < n_);
  std::size_t done = 0;
  for (; done + kLanes <= out.size(); done += kLanes) {
    std::uint32_t x[kLanes];
    for (std::size_t j = 0; j < kLanes; ++j) {
      x[j] = first + static_cast<std::uint32_t>(done + j) * stride;
    }
    for (int i = 0; i < rounds_; ++i) {
      for (auto& lane : x) lane = turn(lane, round_[static_cast<std::size_t>(i)]);
    }
    std::copy(x, x + kLanes, out.begin() + static_cast<std::ptrdiff_t>(done));
  }
  for (; done < out.size(); ++done) {
    out[done] = at(first + static_cast<std::uint32_t>(done) * stride);
  }
}

void Permutation::positions_of(std::span<std::uint32_t> values) const {
  std::size_t done = 0;
  for (; done + kLanes <= values.size(); done += kLanes) {
    std::uint32_t x[kLanes];
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(done), kLanes, x);
    for (int i = rounds_; i-- > 0;) {
      for (auto& lane : x) lane = turn(lane, round_[static_cast<std::size_t>(i)]);
    }
    std::copy(x, x + kLanes, values.begin() + static_cast<std::ptrdiff_t>(done));
  }
  for (; done < values.size(); ++done) values[done] = position_of(values[done]);
}

}  // namespace quiver::cache
