#include "cache/sampler/item_set.h"

#include <bit>

#include "base/check.h"

namespace quiver::cache {
namespace {

std::size_t words_for(std::uint32_t size) {
  return (static_cast<std::size_t>(size) + 63) / 64;
}

// The bits of the last word that lie within size.
std::uint64_t last_mask(std::uint32_t size) {
  return size % 64 == 0 ? ~std::uint64_t{0} : (std::uint64_t{1} << (size % 64)) - 1;
}

}  // namespace

ItemSet::ItemSet(std::uint32_t size, bool full)
    : size_(size), count_(full ? size : 0), words_(words_for(size), full ? ~std::uint64_t{0} : 0) {
  if (full && size > 0) words_.back() &= last_mask(size);
}

bool ItemSet::insert(ItemId id) {
  CHECK(id.value < size_);
  std::uint64_t& word = words_[id.value >> 6];
  const std::uint64_t bit = std::uint64_t{1} << (id.value & 63);
  if (word & bit) return false;
  word |= bit;
  ++count_;
  return true;
}

bool ItemSet::erase(ItemId id) {
  CHECK(id.value < size_);
  std::uint64_t& word = words_[id.value >> 6];
  const std::uint64_t bit = std::uint64_t{1} << (id.value & 63);
  if (!(word & bit)) return false;
  word &= ~bit;
  --count_;
  return true;
}

void ItemSet::add(const ItemSet& other) {
  CHECK(size_ == other.size_);
  count_ = 0;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    words_[i] |= other.words_[i];
    count_ += static_cast<std::uint32_t>(std::popcount(words_[i]));
  }
}

void ItemSet::remove(const ItemSet& other) {
  CHECK(size_ == other.size_);
  count_ = 0;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    words_[i] &= ~other.words_[i];
    count_ += static_cast<std::uint32_t>(std::popcount(words_[i]));
  }
}

Result<ItemSet> ItemSet::from_words(std::uint32_t size, std::vector<std::uint64_t> words) {
  if (words.size() != words_for(size)) {
    return error(Code::kCorrupt, "a bitmap of {} items has {} words, not {}", size, words.size(),
                 words_for(size));
  }
  if (size > 0 && (words.back() & ~last_mask(size)) != 0) {
    return error(Code::kCorrupt, "a bitmap of {} items has bits beyond its end", size);
  }
  ItemSet set(0);
  set.size_ = size;
  for (const std::uint64_t word : words) {
    set.count_ += static_cast<std::uint32_t>(std::popcount(word));
  }
  set.words_ = std::move(words);
  return set;
}

}  // namespace quiver::cache
