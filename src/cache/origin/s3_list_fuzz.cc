// A listing from a hostile store: parsed or refused, and then its keys re-encode to themselves.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "cache/origin/s3_xml.h"
#include "cache/origin/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quiver::cache;
  const auto page = parse_s3_page({reinterpret_cast<const char*>(data), size});
  if (!page) return 0;
  for (const auto& object : page->objects) {
    CHECK(!object.key.empty());
    CHECK(decode_listing(encode_path(object.key)) == object.key);
  }
  return 0;
}
