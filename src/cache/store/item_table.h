// ItemTable: from a hash to where its row is, in 8 bytes a slot.
//
// Open addressing with linear probing over 256 shards by the first byte of the hash; a shard grows
// by a quarter when it is 7/8 full, so growing pauses for one shard only and slots are 70–88 %
// used. The hashes themselves stay in the rows: a slot has the row's reference and 18 bits of the
// hash. `hash_of(RowRef)` gives the hash of a row that is in the table. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace quiver::cache {

struct RowRef {
  std::uint32_t segment = 0;  // 25 bits
  std::uint32_t row = 0;      // 20 bits
  bool operator==(const RowRef&) const = default;
};

class ItemTable {
 public:
  template <class HashOf>
  std::optional<RowRef> find(const Sha256& hash, const HashOf& hash_of) const {
    const Shard& shard = shards_[hash.bytes[0]];
    const auto slot = locate(shard, hash, hash_of);
    if (!slot) return std::nullopt;
    return ref_of(shard.slots[*slot]);
  }

  // The hash must not be there.
  template <class HashOf>
  void insert(const Sha256& hash, RowRef ref, const HashOf& hash_of) {
    Shard& shard = shards_[hash.bytes[0]];
    if ((shard.used + 1) * 8 > shard.slots.size() * 7) grow(shard, hash_of);
    place(shard, hash, encode(hash, ref));
    ++shard.used, ++size_;
  }

  // Only where the hash leads to just this row; false otherwise.
  template <class HashOf>
  bool erase(const Sha256& hash, RowRef ref, const HashOf& hash_of) {
    Shard& shard = shards_[hash.bytes[0]];
    const auto slot = locate(shard, hash, hash_of);
    if (!slot || !(ref_of(shard.slots[*slot]) == ref)) return false;
    close_gap(shard, *slot, hash_of);
    --shard.used, --size_;
    return true;
  }

  // Room for so many in an empty table, so that filling it moves nothing.
  void reserve(std::uint64_t items) {
    const std::uint64_t slots = items / shards_.size() * 5 / 4 + 64;
    for (Shard& shard : shards_) {
      if (shard.used == 0) shard.slots.assign(slots, 0);
    }
  }

  std::uint64_t size() const { return size_; }

 private:
  // 0 is empty; else 1 | tag 18 | segment 25 | row 20.
  struct Shard {
    std::vector<std::uint64_t> slots;
    std::size_t used = 0;
  };

  static std::uint32_t bits_of(const Sha256& hash, std::size_t at) {
    std::uint32_t v;
    std::memcpy(&v, hash.bytes.data() + at, sizeof v);
    return v;
  }
  static std::uint64_t encode(const Sha256& hash, RowRef ref) {
    return std::uint64_t{1} << 63 | std::uint64_t{bits_of(hash, 8) & 0x3ffff} << 45 |
           std::uint64_t{ref.segment} << 20 | ref.row;
  }
  static RowRef ref_of(std::uint64_t slot) {
    return {static_cast<std::uint32_t>(slot >> 20 & 0x1ffffff),
            static_cast<std::uint32_t>(slot & 0xfffff)};
  }
  static std::size_t home(const Shard& shard, const Sha256& hash) {
    return static_cast<std::size_t>(std::uint64_t{bits_of(hash, 4)} * shard.slots.size() >> 32);
  }
  static std::size_t after(const Shard& shard, std::size_t i) {
    return i + 1 == shard.slots.size() ? 0 : i + 1;
  }

  template <class HashOf>
  static std::optional<std::size_t> locate(const Shard& shard, const Sha256& hash,
                                           const HashOf& hash_of) {
    if (shard.slots.empty()) return std::nullopt;
    const std::uint64_t tag = encode(hash, {}) >> 45;
    for (std::size_t i = home(shard, hash); shard.slots[i] != 0; i = after(shard, i)) {
      if (shard.slots[i] >> 45 == tag && hash_of(ref_of(shard.slots[i])) == hash) return i;
    }
    return std::nullopt;
  }

  static void place(Shard& shard, const Sha256& hash, std::uint64_t slot) {
    std::size_t i = home(shard, hash);
    while (shard.slots[i] != 0) i = after(shard, i);
    shard.slots[i] = slot;
  }

  template <class HashOf>
  static void grow(Shard& shard, const HashOf& hash_of) {
    Shard larger;
    larger.slots.resize(shard.slots.size() < 8 ? 8 : shard.slots.size() * 5 / 4);
    for (const std::uint64_t slot : shard.slots) {
      if (slot != 0) place(larger, hash_of(ref_of(slot)), slot);
    }
    shard.slots = std::move(larger.slots);
  }

  // Moves back what can no longer be reached over the gap.
  template <class HashOf>
  static void close_gap(Shard& shard, std::size_t gap, const HashOf& hash_of) {
    for (std::size_t i = after(shard, gap); shard.slots[i] != 0; i = after(shard, i)) {
      const std::size_t from = home(shard, hash_of(ref_of(shard.slots[i])));
      const bool stays = gap <= i ? gap < from && from <= i : gap < from || from <= i;
      if (!stays) shard.slots[gap] = shard.slots[i], gap = i;
    }
    shard.slots[gap] = 0;
  }

  std::array<Shard, 256> shards_;
  std::uint64_t size_ = 0;
};

}  // namespace quiver::cache
