// Opening and walking a manifest of a million items: the part of a start that grows with the
// dataset.
#include <benchmark/benchmark.h>

#include "cache/manifest/manifest.h"

namespace quiver::cache {
namespace {

constexpr std::uint32_t kItems = 1'000'000;

ManifestBuilder filled() {
  ManifestBuilder builder("s3://bucket/train");
  std::int32_t label = static_cast<std::int32_t>(builder.add_class("only"));
  Sha256 hash;
  for (std::uint32_t i = 0; i < kItems; ++i) {
    std::memcpy(hash.bytes.data(), &i, sizeof i);
    std::string key = fmt::format("only/image_{:08}.jpeg", i);
    std::uint32_t object = builder.add_object(key, {Bytes(110'000), "\"0123456789abcdef\"", 0});
    builder.add_item(hash, Bytes(110'000), key, label, object, 0);
  }
  return builder;
}

const io::Fd& memory() {
  static const io::Fd fd =
      io::make_sealed_copy("bench", as_bytes(filled().finish().value())).value();
  return fd;
}

std::shared_ptr<const Manifest> opened(bool verify) {
  io::RealFiles files;
  std::string path = fmt::format("/proc/self/fd/{}", memory().get());
  return Manifest::open(files, path, verify).value();
}

void build(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(filled().finish().value());
  state.SetItemsProcessed(state.iterations() * kItems);
}

void open(benchmark::State& state) {
  memory();
  for (auto _ : state) benchmark::DoNotOptimize(opened(state.range(0) != 0));
  state.SetItemsProcessed(state.iterations() * kItems);
}

void iterate(benchmark::State& state) {
  auto manifest = opened(state.range(0) != 0);
  for (auto _ : state) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < manifest->size(); ++i) {
      Item item = manifest->item(ItemId(i));
      sum += item.length.value + item.key.size();
    }
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * kItems);
}

BENCHMARK(build)->Unit(benchmark::kMillisecond);
BENCHMARK(open)->ArgName("verify")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(iterate)->ArgName("verified")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace quiver::cache

BENCHMARK_MAIN();
