#include "cache/policy/fetch_queue.h"

namespace quiver::cache {

std::deque<Sha256>& FetchQueue::queue_of(const Entry& entry) {
  const auto kind = static_cast<std::size_t>(entry.kind);
  Dataset& dataset = datasets_.arriving(entry.dataset);
  Side& side = dataset.sides.arriving(entry.rider != 0);
  Job& job = side.jobs.arriving(entry.rider);
  ++side.size;
  ++dataset.sizes[kind];
  ++sizes_[kind];
  return job.queues[kind];
}

void FetchQueue::push_back(const Entry& entry) {
  queue_of(entry).push_back(entry.hash);
}

void FetchQueue::push_front(const Entry& entry) {
  queue_of(entry).push_front(entry.hash);
}

std::optional<FetchQueue::Entry> FetchQueue::pop() {
  const auto [name, dataset] = datasets_.next();
  if (dataset == nullptr) return std::nullopt;
  Side& side = *dataset->sides.next().second;
  const auto [rider, job] = side.jobs.next();
  const std::size_t kind = job->queues[0].empty() ? 1 : 0;
  Entry entry{name, rider, static_cast<Kind>(kind), job->queues[kind].front()};
  job->queues[kind].pop_front();
  --side.size;
  --dataset->sizes[kind];
  --sizes_[kind];
  return entry;
}

void FetchQueue::charge(const Entry& entry, Bytes bytes) {
  Dataset* const dataset = datasets_.charge(entry.dataset, bytes);
  if (dataset == nullptr) return;
  const Bytes weighed = entry.rider != 0 ? bytes : bytes * kRidersToOrder;
  if (Side* const side = dataset->sides.charge(entry.rider != 0, weighed)) {
    side->jobs.charge(entry.rider, bytes);
  }
}

std::size_t FetchQueue::staged_of(const std::string& dataset) const {
  const Dataset* const found = datasets_.find(dataset);
  return found == nullptr ? 0 : found->sizes[static_cast<std::size_t>(Kind::kStaged)];
}

}  // namespace quiver::cache
