// A set of items as a bitmap: N bits, counted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace quiver::cache {

// One thread at a time. Bits beyond size() are always zero.
class ItemSet {
 public:
  explicit ItemSet(std::uint32_t size, bool full = false);
  std::uint32_t size() const { return size_; }
  std::uint32_t count() const { return count_; }
  bool contains(ItemId id) const { return words_[id.value >> 6] >> (id.value & 63) & 1; }
  bool insert(ItemId id);             // true when it was not in
  bool erase(ItemId id);              // true when it was in
  void add(const ItemSet& other);     // union; of the same size
  void remove(const ItemSet& other);  // difference; of the same size
  // Calls f(ItemId) in ascending order.
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      for (std::uint64_t bits = words_[w]; bits != 0; bits &= bits - 1) {
        f(ItemId(static_cast<std::uint32_t>(w * 64) +
                 static_cast<std::uint32_t>(__builtin_ctzll(bits))));
      }
    }
  }
  const std::vector<std::uint64_t>& words() const { return words_; }
  // From words as they lie in shared memory or a checkpoint; kCorrupt for bits beyond size.
  static Result<ItemSet> from_words(std::uint32_t size, std::vector<std::uint64_t> words);
  bool operator==(const ItemSet&) const = default;

 private:
  std::uint32_t size_;
  std::uint32_t count_ = 0;
  std::vector<std::uint64_t> words_;
};

}  // namespace quiver::cache
