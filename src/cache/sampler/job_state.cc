#include "cache/sampler/job_state.h"

#include <array>
#include <cstddef>

#include "base/check.h"

namespace quiver::cache {
namespace {

template <class T>
void put_le(std::vector<std::uint8_t>& out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }
}

// The first thing in which two parts of one state differ; empty when they belong together.
std::string_view difference(const RankState& a, const RankState& b) {
  if (a.dataset != b.dataset || a.items != b.items) return "dataset";
  if (a.seed != b.seed) return "seed";
  if (a.mode != b.mode) return "mode";
  if (a.world != b.world) return "world size";
  if (a.epoch != b.epoch) return "epoch";
  if (a.step != b.step) return "step";
  if (a.delivered_before != b.delivered_before) return "history before the last resume";
  return {};
}

}  // namespace

void DeliveryChain::add(std::uint64_t epoch, std::uint32_t step, std::uint32_t rank,
                        const std::vector<ItemId>& ids) {
  std::vector<std::uint8_t> head;
  head.reserve(16 + 4 * ids.size());
  put_le(head, epoch);
  put_le(head, step);
  put_le(head, rank);
  for (const ItemId id : ids) put_le(head, id.value);
  Sha256Stream hash;
  hash.update(std::as_bytes(std::span(value_.bytes)));
  hash.update(std::as_bytes(std::span(head)));
  value_ = hash.finish();
}

DeliveryChain DeliveryChain::from(Sha256 value) {
  DeliveryChain chain;
  chain.value_ = value;
  return chain;
}

void begin_next_epoch(RankState& state) {
  ++state.epoch;
  state.step = 0;
  state.pads = 0;
  state.delivered = ItemSet(state.items);
  state.delivered_before = ItemSet(state.items);
}

Result<JobState> merge(const std::vector<RankState>& parts) {
  if (parts.empty()) return error(Code::kInvalid, "a job's state needs the part of every rank");
  const RankState& first = parts.front();
  std::vector<bool> seen(std::min<std::size_t>(first.world, parts.size()));
  JobState state{first.seed, first.epoch, first.items, first.delivered_before, first.step};
  if (first.world == 1) state.chain = first.chain;
  std::uint64_t deliveries = state.delivered.count(), pads = 0;
  for (const RankState& part : parts) {
    if (const auto what = difference(first, part); !what.empty()) {
      return error(Code::kInvalid,
                   "the parts of rank {} and rank {} are not of one state: their {} differs",
                   first.rank, part.rank, what);
    }
    if (part.rank >= seen.size()) break;  // then another one is missing or there twice
    if (seen[part.rank]) {
      return error(Code::kInvalid, "the part of rank {} is there twice", part.rank);
    }
    seen[part.rank] = true;
    deliveries += part.delivered.count();
    pads += part.pads;
    state.delivered.add(part.delivered);
  }
  for (std::uint32_t rank = 0; rank < first.world; ++rank) {
    if (rank < seen.size() && seen[rank]) continue;
    return error(Code::kInvalid,
                 "the part of rank {} of {} is missing: the state of a job is that of all its "
                 "ranks",
                 rank, first.world);
  }
  if (deliveries - state.delivered.count() > pads) {
    return error(Code::kInvalid, "{} items were delivered twice, but only {} pads explain it",
                 deliveries - state.delivered.count(), pads);
  }
  return state;
}

}  // namespace quiver::cache
