// Hits through the client against plain preads of one page-cached file, interleaved in one run: one
// JSON line. Items of 110 KB, default verification, everything read once before. Usage:
// dataset_bench [seconds per round]
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "cache/client/dataset.h"
#include "cache/client/digest.h"
#include "cache/client/testing/scripted_daemon.h"
#include "io/test_directory.h"

namespace {

using namespace quiver;
using namespace quiver::cache;

constexpr std::uint32_t kItems = 1000, kPerSegment = 100, kRounds = 7;
constexpr std::size_t kLength = 110'000;

std::string content(std::uint32_t i) {
  std::string text(kLength, static_cast<char>('a' + i % 26));
  const std::string head = std::to_string(i);
  std::copy(head.begin(), head.end(), text.begin());
  return text;
}

// Calls `read(i)` for items in a scattered order for a while; items per second.
template <class Read>
double rate(const Clock& clock, double seconds, Read&& read) {
  const Instant began = clock.now();
  std::uint64_t n = 0;
  double elapsed = 0;
  while (elapsed < seconds) {
    for (int k = 0; k < 100; ++k, ++n) read(static_cast<std::uint32_t>(n * 379 % kItems));
    elapsed = std::chrono::duration<double>(clock.now() - began).count();
  }
  return static_cast<double>(n) / elapsed;
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.5;
  io::TestDirectory dir;
  io::RealFiles files;
  RealClock clock;
  QuietLog log;
  const auto http = io::make_curl_transport(1);
  const Environment environment{files, *http, clock, log};
  std::filesystem::create_directory(dir / "data");
  std::filesystem::create_directory(dir / "cache");
  std::ofstream one(dir / "one", std::ios::binary);
  for (std::uint32_t i = 0; i < kItems; ++i) {
    std::ofstream(dir / fmt::format("data/{:04}", i), std::ios::binary) << content(i);
    one << content(i);
  }
  one.close();
  DigestOptions how;
  how.origin.url = dir / "data";
  how.layout = Layout::kFiles;
  how.manifest_path = dir / "m.qvm";
  CHECK(digest(how, environment, {}, {}));
  const auto manifest = Manifest::open(files, how.manifest_path, true).value();
  ScriptedDaemon daemon(dir / "cache", manifest, [](ItemId id) { return content(id.value); });
  for (std::uint32_t i = 0; i < kItems; ++i) daemon.put(ItemId(i), 1 + i / kPerSegment, true);
  DatasetOptions options;
  options.manifest_path = how.manifest_path;
  options.settings.cache_dir = dir / "cache";
  const auto dataset = Dataset::open(options, environment).value();

  std::vector<std::byte> buffer(kLength);
  const io::Fd plain(::open((dir / "one").c_str(), O_RDONLY | O_CLOEXEC));
  const auto ours = [&](std::uint32_t i) { CHECK(dataset->read(ItemId(i), buffer, {})); };
  const auto reference = [&](std::uint32_t i) {
    CHECK(::pread(plain.get(), buffer.data(), kLength, static_cast<off_t>(i * kLength)) ==
          static_cast<ssize_t>(kLength));
  };
  for (std::uint32_t i = 0; i < kItems; ++i) ours(i), reference(i);
  std::vector<double> a, b, ratios;
  for (std::uint32_t r = 0; r < kRounds; ++r) {
    a.push_back(rate(clock, seconds, ours));
    b.push_back(rate(clock, seconds, reference));
    ratios.push_back(a.back() / b.back());
  }
  CHECK(dataset->stats().items[static_cast<int>(Tier::kDirect)] == 0);
  std::puts(fmt::format(R"({{"name": "hit.client.110k", "ratio": {:.3f}, "ours": {:.0f}, )"
                        R"("reference": {:.0f}, "unit": "items/s", "goal": 0.9}})",
                        median(ratios), median(a), median(b))
                .c_str());
  return 0;
}
