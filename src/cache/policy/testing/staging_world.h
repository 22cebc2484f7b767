// A node and its jobs in virtual time: the real StagingPlan, the real samplers, a link of a given
// rate. One tick is one time step; items have equal length. For tests only.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "cache/policy/fetch_ledger.h"
#include "cache/policy/fetch_queue.h"
#include "cache/policy/staging.h"
#include "cache/policy/testing/sim_job.h"

namespace quiver::cache::testing {

class StagingWorld {
 public:
  static constexpr std::uint64_t kItem = 1000;

  StagingWorld(std::uint32_t items, std::uint32_t pinned, std::uint32_t window, double link)
      : n_(items),
        link_(link),
        pinned_(pinned),
        here_(items),
        ledger_(items),
        plan_(items, [this](ItemId id) { return Bytes(id.value < pinned_ ? 0 : kItem); }) {
    plan_.set_window(Bytes(window * kItem));
    plan_.set_link_pace(link * items / (items - pinned));
  }

  SimJob& add(const JobSetup& setup) {
    jobs_.push_back(std::make_unique<SimJob>());
    static_cast<JobSetup&>(*jobs_.back()) = setup;
    return *jobs_.back();
  }
  // False when the jobs are not done after `most` ticks.
  bool run(std::uint32_t most = 2'000'000) {
    for (; tick_ < most; ++tick_) {
      bool all = true;
      for (std::size_t i = 0; i < jobs_.size(); ++i) {
        step(i);
        all = all && jobs_[i]->finished();
      }
      serve();
      if (all) return true;
    }
    return false;
  }
  std::uint64_t fetched() const { return fetched_; }
  std::uint64_t fetched_until(std::uint32_t tick) const {
    const auto after = by_tick_.upper_bound(tick);
    return after == by_tick_.begin() ? 0 : std::prev(after)->second;
  }
  std::uint32_t most_staged() const { return most_staged_; }
  StagingPlan& plan() { return plan_; }
  const FetchLedger& ledger() const { return ledger_; }

 private:
  void begin(SimJob& job) {
    const std::uint64_t epoch = job.begin(n_);
    for (std::uint32_t i = 0; i < pinned_; ++i) {
      if (here_.contains(ItemId(i))) job.settled.insert(ItemId(i));
    }
    EpochOptions options;
    options.seed = job.seed;
    options.epoch = epoch;
    options.batch_size = job.batch;
    job.sampler = make_substituting_sampler(options, ItemSet(n_, true), job.settled);
    // What passed is looked at again, but for what it took before: one stay serves a job once.
    job.seen = plan_.tail();
  }

  void offer(SimJob& job) {
    job.seen = std::max(job.seen, plan_.tail());
    for (; job.seen < line_.size(); ++job.seen) {
      if (job.used.contains(job.seen)) continue;
      if (job.sampler->wants(line_[job.seen])) {
        job.open.insert(job.seen);
      } else {
        ++job.useless;
      }
    }
    job.open.erase(job.open.begin(), job.open.lower_bound(plan_.tail()));
    for (auto it = job.open.begin(); it != job.open.end() && job.sampler->wanted_now() > 0;) {
      const ItemId id = line_[*it];
      if (here_.contains(id) && job.sampler->offer(id)) {
        job.used.insert(*it);
        it = job.open.erase(it);
      } else {
        ++it;
      }
    }
    for (auto it = job.asked.begin(); it != job.asked.end() && job.sampler->wanted_now() > 0;) {
      const bool done = here_.contains(ItemId(*it)) && job.sampler->offer(ItemId(*it));
      it = done ? job.asked.erase(it) : std::next(it);
    }
  }

  // Too little of what passes is of use: it asks for what it needs itself.
  void ask(std::size_t index) {
    SimJob& job = *jobs_[index];
    const auto useful = std::count_if(job.open.begin(), job.open.end(), [&](std::uint64_t place) {
      return job.sampler->wants(line_[place]);
    });
    std::erase_if(job.asked, [&](std::uint32_t id) {
      const bool coming = flying_.contains(id) || here_.contains(ItemId(id));
      return !coming || !job.sampler->wants(ItemId(id));
    });
    if (useful + job.asked.size() >= job.sampler->wanted_now()) return;
    const bool nothing = useful == 0 && job.asked.empty();
    if (job.useless == job.useless_then && (!nothing || ++job.starved < 3)) return;
    for (const ItemId id :
         job.sampler->own_order(job.batches_to_ask() * job.sampler->wanted_now())) {
      job.asked.insert(id.value);
      ++job.directed;
      if (!here_.contains(id) && flying_.insert(id.value).second) {
        fetch(id, plan_.rides(JobId{index}) ? index + 1 : 0, FetchQueue::Kind::kDirected);
      }
      guests_.insert(id.value);
    }
  }

  void step(std::size_t index) {
    SimJob& job = *jobs_[index];
    if (tick_ < job.start || job.finished()) return;
    if (!job.sampler) begin(job);
    job.budget = std::min(job.budget + job.pace, job.pace + job.batch);
    while (job.budget >= job.batch && !job.sampler->done()) {
      auto drawn = job.sampler->next();
      if (!drawn) {
        offer(job);
        drawn = job.sampler->next();
      }
      if (!drawn) {
        if (!job.sampler->done()) ask(index);
        job.waits = true;
        break;
      }
      job.budget -= static_cast<double>(drawn->items.size());
      job.starved = 0;
      ++job.drawn;
      job.late += std::exchange(job.waits, false);
      for (const ItemId id : drawn->items) {
        job.taken.insert(id);
        job.orders.back().push_back(id);
        job.hits.back() += job.settled.contains(id);
      }
    }
    tell(index);
    if (job.sampler->done()) {
      job.ended.push_back(tick_);
      job.sampler.reset();
      if (job.finished()) plan_.remove(JobId{index}, 0);
    }
  }

  void tell(std::size_t index) {
    const SimJob& job = *jobs_[index];
    RankBoard board;
    board.epoch = job.orders.size() - 1;
    board.order_seed = job.seed;
    board.items_per_second = job.pace;
    board.part = n_;
    board.settled = job.settled.words();
    board.taken = job.taken.words();
    const std::uint64_t epoch = board.epoch;
    plan_.update(JobId{index}, 0, std::move(board));
    if (plan_.leader() != JobId{index}) return;
    const auto [led, first] = led_.try_emplace(index, epoch);
    if (!first && std::exchange(led->second, epoch) != epoch) ledger_.begin_epoch();
  }

  void serve() {
    for (const ItemId id : plan_.release()) {
      ledger_.left(id, plan_.wanted(id) ? Again::kLeftStaging : Again::kNewEpoch);
      here_.erase(id);
      plan_.evicted(id);
    }
    credit_ = std::min(credit_ + link_, link_ + 1);
    while (credit_ >= 1 && queue_.size() > 0) {
      credit_ -= 1;
      const auto next = queue_.pop();
      queue_.charge(*next, Bytes(kItem));
      std::uint32_t id = 0;
      std::memcpy(&id, next->hash.bytes.data(), sizeof id);
      arrive(ItemId(id));
    }
    while (queue_.staged_of({}) < 64) {
      const auto order = plan_.next();
      if (!order) {
        if (plan_.more()) continue;
        break;
      }
      line_.push_back(order->item);
      if (!order->fetch) ledger_.kept(order->item);
      if (order->fetch && order->early) ledger_.early(order->item);
      if (order->fetch && flying_.insert(order->item.value).second) {
        fetch(order->item, 0, FetchQueue::Kind::kStaged);
      }
    }
    std::uint32_t staged = here_.count();
    for (std::uint32_t i = 0; i < pinned_; ++i) staged -= here_.contains(ItemId(i));
    most_staged_ = std::max(most_staged_, staged);
    by_tick_[tick_] = fetched_;
  }

  void fetch(ItemId id, std::uint64_t rider, FetchQueue::Kind kind) {
    FetchQueue::Entry entry{{}, rider, kind, {}};
    std::memcpy(entry.hash.bytes.data(), &id.value, sizeof id.value);
    queue_.push_back(entry);
  }

  void arrive(ItemId id) {
    ++fetched_;
    ledger_.read(id, Bytes(kItem), false);
    flying_.erase(id.value);
    here_.insert(id);
    plan_.arrived(id, id.value < pinned_);
    if (guests_.erase(id.value) != 0) {
      plan_.guest(id);
    } else if (!plan_.holds(id) && id.value >= pinned_) {
      ledger_.left(id, plan_.wanted(id) ? Again::kLeftStaging : Again::kNewEpoch);
      here_.erase(id);
      plan_.evicted(id);
    }
  }

  const std::uint32_t n_;
  const double link_;
  const std::uint32_t pinned_;  // items 0 … pinned−1 stand for the prefix of the hash order
  ItemSet here_;
  FetchLedger ledger_;
  StagingPlan plan_;
  std::map<std::size_t, std::uint64_t> led_;  // by job: its epoch when it was last seen to lead
  std::vector<ItemId> line_;
  FetchQueue queue_;
  std::set<std::uint32_t> flying_, guests_;
  std::vector<std::unique_ptr<SimJob>> jobs_;
  std::map<std::uint32_t, std::uint64_t> by_tick_;
  std::uint64_t fetched_ = 0;
  std::uint32_t most_staged_ = 0;
  std::uint32_t tick_ = 0;
  double credit_ = 0;
};

}  // namespace quiver::cache::testing
