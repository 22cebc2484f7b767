#include "cache/sampler/subset_order.h"

#include <algorithm>

namespace quiver::cache {
namespace {
constexpr std::uint32_t kChunk = 1024;
}

SubsetOrder::SubsetOrder(std::optional<Permutation> order, const ItemSet& initial)
    : order_(std::move(order)),
      size_(initial.size()),
      sparse_(order_.has_value() && initial.count() < initial.size() / 2) {
  if (!sparse_) return;
  std::vector<std::uint32_t> items;
  items.reserve(initial.count());
  initial.for_each([&](ItemId id) { items.push_back(id.value); });
  std::vector<std::uint32_t> places = items;
  order_->positions_of(places);
  computed_ = places.size();
  sorted_.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) sorted_.emplace_back(places[i], ItemId(items[i]));
  std::sort(sorted_.begin(), sorted_.end());
}

std::uint32_t SubsetOrder::place_of(ItemId id) const {
  return order_ ? order_->position_of(id.value) : id.value;
}

bool SubsetOrder::ahead(ItemId id) const {
  const std::uint32_t place = place_of(id);
  if (!sparse_) return place >= passed_;
  return std::binary_search(sorted_.begin() + static_cast<std::ptrdiff_t>(cursor_), sorted_.end(),
                            std::pair(place, id));
}

void SubsetOrder::refill() {
  chunk_at_ = passed_;
  chunk_.resize(std::min(kChunk, size_ - passed_));
  computed_ += chunk_.size();
  if (order_) return order_->fill(passed_, 1, chunk_);
  for (std::size_t i = 0; i < chunk_.size(); ++i) {
    chunk_[i] = passed_ + static_cast<std::uint32_t>(i);
  }
}

std::optional<ItemId> SubsetOrder::next(const ItemSet& members) {
  if (sparse_) {
    while (cursor_ < sorted_.size()) {
      const auto [place, id] = sorted_[cursor_++];
      passed_ = place + 1;
      if (members.contains(id)) return id;
    }
    return std::nullopt;
  }
  for (;;) {
    while (passed_ < size_) {
      if (passed_ >= chunk_at_ + chunk_.size()) refill();
      const ItemId id(chunk_[passed_++ - chunk_at_]);
      if (members.contains(id)) return id;
    }
    if (again_ == 0) return std::nullopt;
    size_ = std::exchange(again_, 0);
    passed_ = chunk_at_ = 0;
    chunk_.clear();
  }
}

}  // namespace quiver::cache
