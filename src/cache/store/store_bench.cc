// What an append, a look-up, a read and a start cost; and the memory that an item costs.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "cache/store/catalog.h"
#include "cache/store/store.h"

namespace quiver::cache {
namespace {

class NoLog final : public LogSink {
 public:
  void write(LogLevel, std::string_view) override {}
};

struct Place {
  Place() {
    std::string name = (std::filesystem::temp_directory_path() / "quiver-bench-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Place() { std::filesystem::remove_all(path); }
  std::unique_ptr<Store> open() {
    return std::move(*Store::open({path + "/c", 60_GiB, 0.0, "boot"}, files, clock, log));
  }
  std::string path;
  io::RealFiles files;
  RealClock clock;
  NoLog log;
};

// Not a SHA-256, but as uniform: what is measured is the table.
Sha256 hash_of(std::uint64_t n) {
  Sha256 hash;
  for (std::size_t at = 0; at < 32; at += 8) {
    std::uint64_t x = (n * 4 + at / 8 + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    x ^= x >> 31;
    std::memcpy(hash.bytes.data() + at, &x, 8);
  }
  return hash;
}

std::string numbered(std::uint64_t n, std::size_t length) {
  std::string bytes(length, 'x');
  std::memcpy(bytes.data(), &n, std::min(length, sizeof n));
  return bytes;
}

void append_items(Store& store, std::uint64_t count, std::size_t length) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto bytes = numbered(i, length);
    const auto item = VerifiedItem::verify(sha256(as_bytes(bytes)), as_bytes(bytes));
    static_cast<void>(store.append({"bench"}, *item, 64_MiB));
  }
}

void append(benchmark::State& state) {
  Place place;
  auto store = place.open();
  const auto length = static_cast<std::size_t>(state.range(0));
  std::uint64_t n = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const auto bytes = numbered(n++, length);
    const auto item = VerifiedItem::verify(sha256(as_bytes(bytes)), as_bytes(bytes));
    state.ResumeTiming();
    const auto at = store->append({"bench"}, *item, 64_MiB);
    if (!at) state.SkipWithError(at.error().message.c_str());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(append)->Arg(4096)->Arg(110'000)->Iterations(10'000);

void read(benchmark::State& state) {
  Place place;
  auto store = place.open();
  const auto length = static_cast<std::size_t>(state.range(0));
  append_items(*store, 1000, length);
  std::vector<StoredAt> places;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    places.push_back(*store->find(sha256(as_bytes(numbered(i, length)))));
  }
  std::string out(length, '\0');
  std::size_t i = 0;
  for (auto _ : state) {
    const auto ok = store->read(places[i++ * 7 % 1000], std::as_writable_bytes(std::span(out)));
    if (!ok) state.SkipWithError("a read failed");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(read)->Arg(4096)->Arg(110'000);

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Memory per item and the cost of a look-up, over a catalog of `range` items.
void find(benchmark::State& state) {
  const auto items = static_cast<std::uint64_t>(state.range(0));
  const std::uint64_t before = resident_bytes();
  Catalog catalog(60_GiB);
  constexpr std::uint64_t kPerSegment = 20'000;
  for (std::uint64_t i = 0; i < items; ++i) {
    const SegmentId id(static_cast<std::uint32_t>(i / kPerSegment));
    if (i % kPerSegment == 0) catalog.add_segment(id, {"bench"}, true);
    catalog.add_item(id, {hash_of(i), i % kPerSegment * 100, 100, 1});
    if (i % kPerSegment == kPerSegment - 1) catalog.set_sealed(id);
  }
  state.counters["bytes_per_item"] = double(resident_bytes() - before) / double(items);
  std::vector<Sha256> wanted;
  for (std::uint64_t i = 0; i < 4096; ++i) wanted.push_back(hash_of(i * 7919 % items));
  std::size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(catalog.find(wanted[i++ % wanted.size()]));
}
BENCHMARK(find)->Arg(1'000'000)->Arg(10'000'000)->Iterations(1'000'000);

void start(benchmark::State& state) {
  Place place;
  append_items(*place.open(), static_cast<std::uint64_t>(state.range(0)), 64);
  for (auto _ : state) {
    const auto store = place.open();
    if (store->stats().items != static_cast<std::uint64_t>(state.range(0))) {
      state.SkipWithError("items were lost");
    }
  }
}
BENCHMARK(start)->Arg(1'000'000)->Iterations(3)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace quiver::cache

BENCHMARK_MAIN();
