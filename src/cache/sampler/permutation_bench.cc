// The cost of orders at the sizes of large datasets.
#include <benchmark/benchmark.h>

#include "cache/sampler/epoch_sampler.h"
#include "cache/sampler/ranks.h"

namespace quiver::cache {
namespace {

constexpr std::uint32_t kTenMillion = 10'000'000;

void at(benchmark::State& state) {
  const Permutation p(derive_key(1, 0, Purpose::kStrictOrder), kTenMillion);
  std::uint32_t place = 0;
  for (auto _ : state) benchmark::DoNotOptimize(p.at(place = (place + 1) % kTenMillion));
}
BENCHMARK(at);

void fill(benchmark::State& state) {
  const Permutation p(derive_key(1, 0, Purpose::kStrictOrder), kTenMillion);
  std::vector<std::uint32_t> out(1024);
  for (auto _ : state) p.fill(0, 1, out);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(out.size()));
}
BENCHMARK(fill);

void construct(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(Permutation(derive_key(1, 0, Purpose::kStrictOrder), kTenMillion));
  }
}
BENCHMARK(construct);

void batch_composition(benchmark::State& state) {
  Stream random(derive_key(1, 0, Purpose::kDraw));
  for (auto _ : state)
    benchmark::DoNotOptimize(hypergeometric(random, kTenMillion, 8'000'000, 256));
}
BENCHMARK(batch_composition);

void epoch_start(benchmark::State& state) {
  const ItemSet remaining(kTenMillion, true);
  ItemSet settled(kTenMillion);
  for (std::uint32_t i = 0; i < kTenMillion; i += 4) settled.insert(ItemId(i));
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        make_substituting_sampler({.batch_size = 256, .pads = {}}, remaining, settled));
  }
}
BENCHMARK(epoch_start)->Unit(benchmark::kMillisecond);

void part_of_rank_fresh(benchmark::State& state) {
  const ItemSet remaining(kTenMillion, true);
  const Shape shape{.items = kTenMillion, .world = static_cast<std::uint32_t>(state.range(0))};
  for (auto _ : state) benchmark::DoNotOptimize(part_of_rank(remaining, remaining, shape, 1, 0));
}
BENCHMARK(part_of_rank_fresh)->Arg(1)->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond);

void part_of_rank_resumed(benchmark::State& state) {
  ItemSet remaining(kTenMillion, true);
  for (std::uint32_t i = 0; i < kTenMillion; i += 2) remaining.erase(ItemId(i));
  const Shape shape{.items = remaining.count(), .world = 4};
  for (auto _ : state) benchmark::DoNotOptimize(part_of_rank(remaining, remaining, shape, 1, 0));
}
BENCHMARK(part_of_rank_resumed)->Unit(benchmark::kMillisecond);

void batch(benchmark::State& state) {
  const ItemSet all(kTenMillion, true);
  auto sampler = make_substituting_sampler({.batch_size = 256, .pads = {}}, all, all);
  for (auto _ : state) {
    if (sampler->done()) {
      sampler = make_substituting_sampler({.batch_size = 256, .pads = {}}, all, all);
    }
    benchmark::DoNotOptimize(sampler->next());
  }
}
BENCHMARK(batch);

// A strict run that resumes at so many per cent of a million items: until its first batch.
void strict_resume(benchmark::State& state) {
  constexpr std::uint32_t kMillion = 1'000'000;
  const Permutation order(derive_key(1, 0, Purpose::kStrictOrder), kMillion);
  ItemSet remaining(kMillion, true);
  const auto delivered = static_cast<std::uint32_t>(state.range(0)) * (kMillion / 100);
  for (std::uint32_t i = 0; i < delivered; ++i) remaining.erase(ItemId(order.at(i)));
  for (auto _ : state) {
    const auto sampler = make_strict_sampler(
        {.seed = 1, .batch_size = 256, .pads = {}, .first_place = delivered}, remaining, true);
    benchmark::DoNotOptimize(sampler->next());
  }
}
BENCHMARK(strict_resume)->Arg(10)->Arg(50)->Arg(90)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace quiver::cache

BENCHMARK_MAIN();
