// What a hit costs: Dataset::read of resident items, default verification, against pread of the
// same lengths from one page-cached file, in turns. One JSON object a line, for bench/run.py.
//
//   bench_hit MANIFEST PLAIN_FILE REPEATS        (settings from the environment, as everywhere)
#include <fcntl.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "cache/client/dataset.h"
#include "cache/client/user_settings.h"
#include "cache/sampler/permutation.h"
#include "io/file.h"
#include "io/http.h"

namespace quiver::cache {
namespace {

struct Rates {
  double ours, reference;  // items a second
};

double seconds_since(const Clock& clock, Instant start) {
  return std::chrono::duration<double>(clock.now() - start).count();
}

Result<Rates> measure(Dataset& dataset, io::Files& files, int plain, const Clock& clock,
                      std::uint64_t round) {
  const Manifest& manifest = dataset.manifest();
  const Permutation order(derive_key(1, round, Purpose::kStrictOrder), manifest.size());
  std::vector<std::byte> buffer(manifest.longest_item().value);
  auto start = clock.now();
  for (std::uint32_t i = 0; i < manifest.size(); ++i) {
    const ItemId id(order.at(i));
    TRY(dataset.read(id, MutableByteSpan(buffer).first(manifest.item(id).length.value), {}));
  }
  const double ours = seconds_since(clock, start);
  start = clock.now();
  for (std::uint32_t i = 0; i < manifest.size(); ++i) {
    const Item item = manifest.item(ItemId(order.at(i)));
    const std::uint64_t offset = order.at(i) * item.length.value;
    TRY(files.pread(plain, MutableByteSpan(buffer).first(item.length.value), offset));
  }
  const double reference = seconds_since(clock, start);
  return Rates{manifest.size() / ours, manifest.size() / reference};
}

Status run(const std::string& manifest, const std::string& plain, int repeats) {
  io::RealFiles files;
  RealClock clock;
  StderrLog log(LogLevel::kWarning);
  auto http = io::make_curl_transport(4);
  DatasetOptions options;
  options.manifest_path = manifest;
  options.settings = TRY(user_settings({}, files));
  auto dataset = TRY(Dataset::open(std::move(options), {files, *http, clock, log}));
  const io::Fd file = TRY(files.open(plain, O_RDONLY, 0));
  // Two rounds before the first that counts: the view is connected and first reads are verified.
  for (std::uint64_t round = 0; round < static_cast<std::uint64_t>(repeats) + 2; ++round) {
    const Rates rates = TRY(measure(*dataset, files, file.get(), clock, round));
    if (round < 2) continue;
    fmt::print("{{\"ours\": {:.1f}, \"reference\": {:.1f}}}\n", rates.ours, rates.reference);
  }
  return {};
}

}  // namespace
}  // namespace quiver::cache

int main(int argc, char** argv) {
  if (argc != 4) return fmt::print(stderr, "usage: bench_hit MANIFEST PLAIN_FILE REPEATS\n"), 2;
  const auto status = quiver::cache::run(argv[1], argv[2], std::atoi(argv[3]));
  if (!status) return fmt::print(stderr, "bench_hit: {}\n", status.error().message), 1;
  return 0;
}
