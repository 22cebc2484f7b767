// Any bytes as a manifest: opened both ways and read from end to end. The checksums would keep a
// fuzzer out of everything behind them, so they are mended in a second and a third try.
#include <cstdlib>

#include "cache/manifest/format.h"
#include "cache/manifest/manifest.h"

namespace {

using namespace quiver;
using namespace quiver::cache;

void read_all(const Manifest& m) {
  std::size_t sum = m.origin_url().size();
  auto touch = [&](std::string_view text) {
    for (char c : text) sum += static_cast<unsigned char>(c);
  };
  for (std::uint32_t i = 0; i < m.size(); ++i) {
    Item item = m.item(ItemId(i));
    touch(item.key);
    ObjectRef object = m.object(item.object);
    touch(object.key);
    touch(object.etag);
    if (item.length.value > 0 && item.offset + item.length.value > object.size.value) std::abort();
    if (item.label >= static_cast<std::int64_t>(m.class_count())) std::abort();
  }
  for (std::uint32_t i = 0; i < m.class_count(); ++i) touch(m.class_name(i));
  volatile std::size_t kept = sum;
  static_cast<void>(kept);
}

void try_open(const std::string& bytes) {
  for (bool verify : {false, true}) {
    auto fd = io::make_sealed_copy("fuzz", as_bytes(bytes));
    if (!fd) return;
    auto manifest = Manifest::open(std::move(fd).value(), "fuzz", verify);
    if (manifest) read_all(**manifest);
  }
}

void mend(std::string& bytes, bool contents) {
  format::Header h;
  std::memcpy(&h, bytes.data(), sizeof h);
  h.header_digest = format::header_digest(h);
  if (contents && format::check_header(h, bytes.size(), "fuzz")) {
    h.root = format::content_root(h, as_bytes(bytes));
    h.places_digest = format::places_digest(h, as_bytes(bytes));
    h.header_digest = format::header_digest(h);
  }
  std::memcpy(bytes.data(), &h, sizeof h);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  try_open(bytes);
  if (size < sizeof(format::Header)) return 0;
  mend(bytes, false);
  try_open(bytes);
  mend(bytes, true);
  try_open(bytes);
  return 0;
}
