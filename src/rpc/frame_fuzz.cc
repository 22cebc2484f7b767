// The parsers of frames and of payloads over any bytes: as a frame, and the second half as the
// fields that the first half names.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "rpc/frame.h"
#include "rpc/wire.h"

namespace quiver::rpc {
namespace {

constexpr Bytes kLimit = 1_MiB;

// Each step names the next field to read; ends at the first failure, which must be kCorrupt.
Status read_fields(Reader& steps, Reader& r) {
  while (steps.left() > 0) {
    const std::size_t before = r.left();
    switch (TRY(steps.u8()) % 12) {
      case 0:
        TRY(r.u8());
        break;
      case 1:
        TRY(r.u16());
        break;
      case 2:
        TRY(r.u32());
        break;
      case 3:
        TRY(r.u64());
        break;
      case 4:
        TRY(r.i32());
        break;
      case 5:
        TRY(r.i64());
        break;
      case 6:
        TRY(r.f64());
        break;
      case 7:
        TRY(r.boolean());
        break;
      case 8:
        TRY(r.string());
        break;
      case 9:
        CHECK(TRY(r.bytes()).size() <= before);
        break;
      case 10:
        TRY(r.sha256());
        break;
      case 11:
        CHECK(TRY(r.count(4)) <= before / 4);
        break;
    }
    CHECK(r.left() < before);
  }
  return r.done();
}

void fuzz(ByteSpan data) {
  const auto header = decode_header(data.first(std::min(data.size(), kHeaderSize)), kLimit);
  if (header) {
    CHECK(header->payload_size <= kLimit.value);
    const auto again = encode_header(*header);
    CHECK(as_text(again) == as_text(data.first(kHeaderSize)));  // one way to write each header
    const Error error = decode_error(data.subspan(kHeaderSize));
    CHECK(decode_error(as_bytes(encode_error(error))).message == error.message);
  }
  const std::size_t half = data.size() / 2;
  Reader steps(data.first(half)), fields(data.subspan(half));
  const Status read = read_fields(steps, fields);
  CHECK(read || read.error().code == Code::kCorrupt);
}

}  // namespace
}  // namespace quiver::rpc

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quiver::rpc::fuzz(std::as_bytes(std::span(data, size)));
  return 0;
}
