// A refusal from a hostile store: always one failure with a message that a terminal can show.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "cache/origin/s3_error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quiver;
  if (size < 1) return 0;
  static constexpr int kStatus[] = {200, 301, 400, 403, 404, 412, 416, 429, 500, 503};
  io::HttpResponse answer;
  answer.status = kStatus[data[0] % std::size(kStatus)];
  answer.body.assign(reinterpret_cast<const char*>(data + 1), size - 1);
  answer.headers = {{"retry-after", answer.body.substr(0, 29)}};
  const cache::Failure failure = cache::s3_refusal("s3://b/k", answer, {});
  CHECK(failure.error.message.starts_with("s3://b/k: "));
  for (const unsigned char c : failure.error.message) CHECK(c >= 32 && c < 127);
  CHECK(failure.retry_after.count() >= 0);
  CHECK(cache::s3_region_hint(answer).size() <= 32);
  return 0;
}
