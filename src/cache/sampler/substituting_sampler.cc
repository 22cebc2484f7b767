#include <algorithm>
#include <deque>
#include <map>

#include "base/check.h"
#include "cache/sampler/epoch_sampler.h"
#include "cache/sampler/subset_order.h"

namespace quiver::cache {
namespace {

ItemSet minus(ItemSet set, const ItemSet& other) {
  set.remove(other);
  return set;
}

// The items that this rank asks for itself: a keyed order over what is missing. An item that
// becomes missing when its place has passed gets a new place, uniform over what is to come: first
// or last of all would show in its position. One thread at a time.
// Invariant: a missing item is in front of the order, or queued (in window_ or replaced_), not
// both.
class OwnOrder {
 public:
  OwnOrder(Permutation order, const ItemSet& missing)
      : order_(std::move(order), missing), queued_(missing.size()), size_(missing.size()) {}

  // The next `count` of `missing`. Costs what was not looked at before.
  std::vector<ItemId> first(std::uint32_t count, const ItemSet& missing) {
    std::erase_if(window_, [&](ItemId id) {
      if (missing.contains(id)) return false;
      queued_.erase(id);
      return true;
    });
    while (window_.size() < count) {
      const auto id = advance(missing);
      if (!id) break;
      queued_.insert(*id);
      window_.push_back(*id);
    }
    const auto n = std::min<std::size_t>(count, window_.size());
    return {window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(n)};
  }

  // `missing` holds it already.
  void became_missing(ItemId id, const ItemSet& missing, Stream& random) {
    if (queued_.contains(id) || order_.ahead(id)) return;
    queued_.insert(id);
    if (const auto rank = random.below(missing.count()); rank < window_.size()) {
      window_.insert(window_.begin() + static_cast<std::ptrdiff_t>(rank), id);
      return;
    }
    const std::uint32_t passed = order_.passed();
    const auto place = passed + static_cast<std::uint32_t>(random.below(size_ - passed + 1ULL));
    replaced_.emplace(place, id);
  }

 private:
  std::optional<ItemId> advance(const ItemSet& missing) {
    for (;;) {
      const bool due = !replaced_.empty() && replaced_.begin()->first < order_.passed();
      if (!due) {
        if (const auto id = order_.next(missing)) return id;
        if (replaced_.empty()) return std::nullopt;
      }
      const ItemId id = replaced_.begin()->second;
      replaced_.erase(replaced_.begin());
      queued_.erase(id);
      if (missing.contains(id)) return id;
    }
  }

  SubsetOrder order_;
  std::multimap<std::uint32_t, ItemId> replaced_;  // by new place
  std::vector<ItemId> window_;                     // met, and missing when last looked at
  ItemSet queued_;
  std::uint32_t size_;
};

// Invariant: an undrawn item is in exactly one of settled_, missing_ and offers_; left_ counts them
// and the pads. pool_ holds settled_ and items that were lost since.
class SubstitutingSampler final : public EpochSampler {
 public:
  SubstitutingSampler(const EpochOptions& options, const ItemSet& remaining, const ItemSet& settled)
      : options_(options),
        random_(derive_key(derive_key(options.seed, options.epoch, Purpose::kDraw),
                           std::uint64_t{options.rank} << 32 | options.first_step)),
        missing_(minus(remaining, settled)),
        settled_(minus(remaining, missing_)),
        own_(Permutation(derive_key(options.seed, options.epoch, Purpose::kOwnOrder),
                         remaining.size()),
             missing_),
        step_(options.first_step),
        left_(std::uint64_t{remaining.count()} + options.pads.size()) {
    pool_.reserve(settled_.count());
    settled_.for_each([&](ItemId id) { pool_.push_back(id); });
    shuffle(options_.pads);
    plan();
  }

  bool done() const override { return plan_.size == 0; }

  std::uint32_t wanted_now() const override {
    const auto there = static_cast<std::uint32_t>(offers_.size());
    return plan_.missing > there ? plan_.missing - there : 0;
  }

  bool wants(ItemId id) const override {
    return id.value < missing_.size() && missing_.contains(id);
  }

  bool offer(ItemId id) override {
    if (!wants(id)) return false;
    missing_.erase(id);
    offers_.push_back(id);
    return true;
  }

  void lost(ItemId id) override {
    CHECK(id.value < settled_.size());
    if (!settled_.erase(id)) {
      const auto offered = std::find(offers_.begin(), offers_.end(), id);
      if (offered == offers_.end()) return;  // drawn already, or known to be missing
      offers_.erase(offered);
    }
    missing_.insert(id);
    own_.became_missing(id, missing_, random_);
    // The draw stands, unless too few settled items are left to serve it.
    plan_.missing =
        std::max<std::uint64_t>(plan_.missing + settled_.count(), plan_.size - plan_.pads) -
        settled_.count();
  }

  std::vector<ItemId> own_order(std::uint32_t count) const override {
    return own_.first(count, missing_);
  }

  std::optional<DrawnBatch> next() override {
    if (done() || wanted_now() > 0) return std::nullopt;
    DrawnBatch batch;
    batch.step = step_++;
    batch.missing = static_cast<std::uint32_t>(plan_.missing);
    batch.items.reserve(plan_.size);
    for (std::uint64_t i = 0; i < plan_.pads; ++i) {
      batch.items.push_back(options_.pads.back());
      options_.pads.pop_back();
    }
    batch.items.insert(batch.items.end(), offers_.begin(),
                       offers_.begin() + static_cast<std::ptrdiff_t>(plan_.missing));
    offers_.erase(offers_.begin(), offers_.begin() + static_cast<std::ptrdiff_t>(plan_.missing));
    while (batch.items.size() < plan_.size) batch.items.push_back(draw_settled());
    shuffle(batch.items);
    left_ -= plan_.size;
    plan();
    return batch;
  }

 private:
  // What the next batch is made of; size 0 when there is none.
  struct Plan {
    std::uint64_t size = 0, pads = 0, missing = 0;
  };

  // Draws the composition of the next batch, once: to draw it anew while the batch waits would
  // favour what is resident.
  void plan() {
    plan_ = Plan{};
    if (options_.drop_last && left_ < options_.batch_size) return;
    plan_.size = std::min<std::uint64_t>(options_.batch_size, left_);
    plan_.pads = hypergeometric(random_, left_, options_.pads.size(), plan_.size);
    plan_.missing = hypergeometric(random_, left_ - options_.pads.size(),
                                   missing_.count() + offers_.size(), plan_.size - plan_.pads);
  }

  ItemId draw_settled() {
    for (;;) {
      CHECK(!pool_.empty());
      ItemId& place = pool_[random_.below(pool_.size())];
      const ItemId id = place;
      place = pool_.back();
      pool_.pop_back();
      if (settled_.erase(id)) return id;  // else it was lost
    }
  }

  void shuffle(std::vector<ItemId>& items) {
    for (std::size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[random_.below(i)]);
    }
  }

  EpochOptions options_;  // its pads are those not yet delivered
  Stream random_;
  ItemSet missing_;  // and not offered
  ItemSet settled_;  // and not drawn
  std::vector<ItemId> pool_;
  std::deque<ItemId> offers_;
  mutable OwnOrder own_;  // remembers how far it has looked
  Plan plan_;
  std::uint32_t step_;
  std::uint64_t left_;
};

}  // namespace

std::unique_ptr<EpochSampler> make_substituting_sampler(const EpochOptions& options,
                                                        const ItemSet& remaining,
                                                        const ItemSet& settled) {
  CHECK(options.batch_size > 0 && remaining.size() == settled.size());
  return std::make_unique<SubstitutingSampler>(options, remaining, settled);
}

}  // namespace quiver::cache
