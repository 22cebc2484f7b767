#include "cache/sampler/ranks.h"

#include <algorithm>

#include "base/check.h"

namespace quiver::cache {
namespace {

// Without pads: the places r, r+W, … below `items`, all of them or as many as every rank has.
std::uint32_t own_items(const Shape& shape) {
  CHECK(shape.world > 0 && shape.rank < shape.world && shape.batch_size > 0);
  const std::uint32_t each = shape.items / shape.world;
  if (shape.uneven == Uneven::kDrop) return each;
  return each + (shape.rank < shape.items % shape.world ? 1 : 0);
}

// The order that is dealt.
class Deal {
 public:
  Deal(std::uint32_t n, bool shuffle, std::uint64_t seed, std::uint64_t epoch)
      : shuffle_(shuffle), order_(derive_key(seed, epoch, Purpose::kStrictOrder), n) {}
  void fill(std::uint32_t first, std::uint32_t stride, std::span<std::uint32_t> out) const {
    if (shuffle_) return order_.fill(first, stride, out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = first + static_cast<std::uint32_t>(i) * stride;
    }
  }
  ItemId at(std::uint32_t place) const { return ItemId(shuffle_ ? order_.at(place) : place); }

 private:
  bool shuffle_;
  Permutation order_;
};

constexpr std::size_t kChunk = 4096;

// Everything remains: the rank's places follow from its number alone.
ItemSet part_of_all(const Deal& deal, const Shape& shape, std::uint32_t n) {
  ItemSet part(n);
  std::vector<std::uint32_t> items(kChunk);
  const std::uint32_t own = own_items(shape);
  for (std::uint32_t done = 0; done < own;) {
    const auto now = std::min<std::size_t>(kChunk, own - done);
    const auto chunk = std::span(items).first(now);
    deal.fill(shape.rank + done * shape.world, shape.world, chunk);
    for (const std::uint32_t item : chunk) part.insert(ItemId(item));
    done += static_cast<std::uint32_t>(now);
  }
  return part;
}

// From the end of the order back to the first item that remains: a strict run that resumes late has
// little to look at.
ItemSet part_of_rest(const Deal& deal, const Shape& shape, const ItemSet& remaining) {
  ItemSet part(remaining.size());
  std::vector<std::uint32_t> items(kChunk);
  const std::uint32_t own = own_items(shape);
  std::uint32_t end = remaining.size();
  for (std::uint32_t place = remaining.count(); place > 0;) {
    const auto now = std::min<std::uint32_t>(kChunk, end);
    const auto chunk = std::span(items).first(now);
    deal.fill(end - now, 1, chunk);
    end -= now;
    for (std::size_t i = now; i-- > 0;) {
      if (!remaining.contains(ItemId(chunk[i]))) continue;
      --place;
      if (place % shape.world == shape.rank && place / shape.world < own) {
        part.insert(ItemId(chunk[i]));
      }
    }
  }
  return part;
}

// The n-th of `base` in the order, which begins again at its end.
ItemId pad_at(const Deal& deal, const ItemSet& base, std::uint32_t n) {
  n %= base.count();
  for (std::uint32_t place = 0;; ++place) {
    const ItemId id = deal.at(place);
    if (base.contains(id) && n-- == 0) return id;
  }
}

}  // namespace

std::uint32_t items_of_rank(const Shape& shape) {
  const std::uint32_t own = own_items(shape);
  if (shape.uneven != Uneven::kPad) return own;
  return own + (shape.items % shape.world > 0 && shape.rank >= shape.items % shape.world ? 1 : 0);
}

std::uint32_t batches_of_rank(const Shape& shape) {
  const std::uint32_t items = items_of_rank(shape);
  const std::uint32_t whole = items / shape.batch_size;
  return shape.drop_last || items % shape.batch_size == 0 ? whole : whole + 1;
}

RankPart part_of_rank(const ItemSet& base, const ItemSet& remaining, const Shape& shape,
                      std::uint64_t seed, std::uint64_t epoch) {
  CHECK(shape.items == remaining.count());
  const std::uint32_t n = remaining.size();
  const Deal deal(n, shape.shuffle, seed, epoch);
  RankPart part{shape.world == 1   ? remaining  // and no order needs to be known
                : shape.items == n ? part_of_all(deal, shape, n)
                                   : part_of_rest(deal, shape, remaining),
                {}};
  if (items_of_rank(shape) > own_items(shape)) {
    part.pads.push_back(pad_at(deal, base, shape.rank - shape.items % shape.world));
  }
  return part;
}

}  // namespace quiver::cache
