#include "cache/policy/fetch_queue.h"

#include <algorithm>

namespace quiver::cache {

std::deque<Sha256>& FetchQueue::queue_of(const Entry& entry) {
  Flow& flow = flows_[entry.dataset];
  if (flow.empty()) flow.clock = std::max(flow.clock, now_);
  ++sizes_[static_cast<std::size_t>(entry.kind)];
  return flow.queues[static_cast<std::size_t>(entry.kind)];
}

void FetchQueue::push_back(const Entry& entry) {
  queue_of(entry).push_back(entry.hash);
}

void FetchQueue::push_front(const Entry& entry) {
  queue_of(entry).push_front(entry.hash);
}

std::optional<FetchQueue::Entry> FetchQueue::pop() {
  const std::pair<const std::string, Flow>* last = nullptr;
  for (const auto& entry : flows_) {
    if (entry.second.empty()) continue;
    if (last == nullptr || entry.second.clock < last->second.clock) last = &entry;
  }
  if (last == nullptr) return std::nullopt;
  Entry entry;
  entry.dataset = last->first;
  entry.kind = last->second.queues[0].empty() ? Kind::kStaged : Kind::kDirected;
  auto& queue = flows_[entry.dataset].queues[static_cast<std::size_t>(entry.kind)];
  entry.hash = queue.front();
  queue.pop_front();
  --sizes_[static_cast<std::size_t>(entry.kind)];
  now_ = std::max(now_, last->second.clock);
  return entry;
}

void FetchQueue::charge(const std::string& dataset, Bytes bytes) {
  flows_[dataset].clock += bytes.value;
  std::erase_if(flows_, [this](const auto& entry) {
    return entry.second.empty() && entry.second.clock <= now_;
  });
}

std::size_t FetchQueue::staged_of(const std::string& dataset) const {
  const auto flow = flows_.find(dataset);
  return flow == flows_.end() ? 0
                              : flow->second.queues[static_cast<std::size_t>(Kind::kStaged)].size();
}

}  // namespace quiver::cache
