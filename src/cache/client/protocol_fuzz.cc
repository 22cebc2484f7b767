// The first byte chooses the message; the rest is its payload. What decodes is encoded again and
// must come back the same (a greeting may lose what a later version appended).
#include <string_view>

#include "base/check.h"
#include "cache/client/protocol.h"

namespace {

using namespace quiver::cache;

template <class M>
void round_trip(std::string_view payload) {
  const auto message = decode<M>(payload);
  if (!message) return;
  const std::string again = encode(*message);
  CHECK(payload.substr(0, again.size()) == again);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view payload(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 22) {
    case 0:
      round_trip<HelloRequest>(payload);
      break;
    case 1:
      round_trip<HelloReply>(payload);
      break;
    case 2:
      round_trip<OpenRequest>(payload);
      break;
    case 3:
      round_trip<OpenReply>(payload);
      break;
    case 4:
      round_trip<JoinRequest>(payload);
      break;
    case 5:
      round_trip<SegmentsRequest>(payload);
      break;
    case 6:
      round_trip<SegmentsReply>(payload);
      break;
    case 7:
      round_trip<FetchRequest>(payload);
      break;
    case 8:
      round_trip<FetchReply>(payload);
      break;
    case 9:
      round_trip<InsertRequest>(payload);
      break;
    case 10:
      round_trip<InsertReply>(payload);
      break;
    case 11:
      round_trip<ReportRequest>(payload);
      break;
    case 12:
      round_trip<StatusReply>(payload);
      break;
    case 13:
      round_trip<WarmRequest>(payload);
      break;
    case 14:
      round_trip<WarmReply>(payload);
      break;
    case 15:
      round_trip<EvictRequest>(payload);
      break;
    case 16:
      round_trip<EvictReply>(payload);
      break;
    case 17:
      round_trip<LeaveRequest>(payload);
      break;
    case 18:
      round_trip<DamagedRequest>(payload);
      break;
    case 19:
      round_trip<InsertPartRequest>(payload);
      break;
    case 20:
      round_trip<ContentsRequest>(payload);
      break;
    case 21:
      round_trip<ContentsReply>(payload);
      break;
    default:
      round_trip<DamagedReply>(payload);
      break;
  }
  return 0;
}
