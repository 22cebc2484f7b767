// The samplers whose order is known before they begin: strict and listed.
#include <algorithm>
#include <deque>

#include "base/check.h"
#include "cache/sampler/epoch_sampler.h"
#include "cache/sampler/subset_order.h"

namespace quiver::cache {
namespace {

// Nothing that arrives or is lost changes a fixed order.
class FixedSampler : public EpochSampler {
 public:
  std::uint32_t wanted_now() const final { return 0; }
  bool wants(ItemId) const final { return false; }
  bool offer(ItemId) final { return false; }
  void lost(ItemId) final {}
};

// Pads come last, as in torch. Holds the remaining items as a bitmap, and those that own_order()
// has named.
class StrictSampler final : public FixedSampler {
 public:
  StrictSampler(const EpochOptions& options, const ItemSet& remaining, bool shuffle)
      : options_(options),
        remaining_(remaining),
        order_(options.first_place == 0
                   ? SubsetOrder(permutation(options, remaining, shuffle), remaining)
                   : SubsetOrder(permutation(options, remaining, shuffle), remaining.size(),
                                 options.first_place)),
        step_(options.first_step),
        left_(std::uint64_t{remaining.count()} + options.pads.size()),
        unseen_(remaining.count()) {}

  bool done() const override {
    return left_ == 0 || (options_.drop_last && left_ < options_.batch_size);
  }

  std::optional<DrawnBatch> next() override {
    if (done()) return std::nullopt;
    DrawnBatch batch;
    batch.step = step_++;
    const auto size = std::min<std::uint64_t>(options_.batch_size, left_);
    left_ -= size;
    look_ahead(size);
    const auto n = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(size, ahead_.size()));
    batch.items.assign(ahead_.begin(), ahead_.begin() + n);
    ahead_.erase(ahead_.begin(), ahead_.begin() + n);
    while (batch.items.size() < size) batch.items.push_back(options_.pads[pads_given_++]);
    return batch;
  }

  std::vector<ItemId> own_order(std::uint32_t count) const override {
    look_ahead(count);
    const auto n = std::min<std::size_t>(count, ahead_.size());
    return {ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(n)};
  }

 private:
  static std::optional<Permutation> permutation(const EpochOptions& options,
                                                const ItemSet& remaining, bool shuffle) {
    if (!shuffle) return std::nullopt;
    return Permutation(derive_key(options.seed, options.epoch, Purpose::kStrictOrder),
                       remaining.size());
  }

  void look_ahead(std::uint64_t count) const {
    for (; ahead_.size() < count && unseen_ > 0; --unseen_) {
      ahead_.push_back(order_.next(remaining_).value());
    }
  }

  EpochOptions options_;
  ItemSet remaining_;
  mutable SubsetOrder order_;
  mutable std::deque<ItemId> ahead_;  // undrawn, before what order_ gives next
  std::uint32_t step_;
  std::uint64_t left_;
  mutable std::uint32_t unseen_;  // of the remaining, before order_ gave them
  std::size_t pads_given_ = 0;
};

class ListedSampler final : public FixedSampler {
 public:
  ListedSampler(std::vector<std::vector<ItemId>> batches, std::uint32_t first_step)
      : batches_(std::move(batches)), first_step_(first_step) {}

  bool done() const override { return given_ == batches_.size(); }

  std::optional<DrawnBatch> next() override {
    if (done()) return std::nullopt;
    DrawnBatch batch;
    batch.step = first_step_ + static_cast<std::uint32_t>(given_);
    batch.items = std::move(batches_[given_++]);
    return batch;
  }

  std::vector<ItemId> own_order(std::uint32_t count) const override {
    std::vector<ItemId> items;
    for (std::size_t b = given_; b < batches_.size() && items.size() < count; ++b) {
      const auto n = std::min<std::size_t>(count - items.size(), batches_[b].size());
      items.insert(items.end(), batches_[b].begin(),
                   batches_[b].begin() + static_cast<std::ptrdiff_t>(n));
    }
    return items;
  }

 private:
  std::vector<std::vector<ItemId>> batches_;
  std::uint32_t first_step_;
  std::size_t given_ = 0;
};

}  // namespace

std::unique_ptr<EpochSampler> make_strict_sampler(const EpochOptions& options,
                                                  const ItemSet& remaining, bool shuffle) {
  CHECK(options.batch_size > 0);
  return std::make_unique<StrictSampler>(options, remaining, shuffle);
}

std::unique_ptr<EpochSampler> make_listed_sampler(std::vector<std::vector<ItemId>> batches,
                                                  std::uint32_t first_step) {
  return std::make_unique<ListedSampler>(std::move(batches), first_step);
}

}  // namespace quiver::cache
