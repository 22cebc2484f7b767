// Whatever lies in the files of a cache directory, parsing it gives a value or an error. The first
// byte says which parser; what was parsed must be written again as it was read.
#include <cstdlib>

#include "cache/store/segment_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quiver;
  using namespace quiver::cache;
  if (size == 0) return 0;
  const ByteSpan bytes = std::as_bytes(std::span(data + 1, size - 1));
  bool same = true;
  switch (data[0] % 5) {
    case 0:
      if (const auto row = decode_row(bytes)) same = as_text(encode_row(*row)) == as_text(bytes);
      break;
    case 1:
      static_cast<void>(decode_header(bytes, SegmentId(42)));
      break;
    case 2:
      if (const auto boot = decode_boot(as_text(bytes))) {
        const auto again = decode_boot(encode_boot(*boot));
        same = again && *again == *boot;
      }
      break;
    case 3:
      static_cast<void>(decode_marker(as_text(bytes)));
      break;
    case 4:
      if (const auto file = parse_name(as_text(bytes))) {
        same = as_text(bytes) == (file->index ? index_name(file->id) : data_name(file->id));
      }
      break;
  }
  if (!same) std::abort();
  return 0;
}
