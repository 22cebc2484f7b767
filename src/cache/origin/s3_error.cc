#include "cache/origin/s3_error.h"

#include <algorithm>
#include <iterator>

#include "cache/origin/text.h"

namespace quiver::cache {
namespace {

struct Row {
  std::string_view s3;
  Code code;
  std::optional<RetryClass> retry;
  std::string_view reason_and_cure;
};

constexpr std::string_view kExpiredText =
    "the credentials have expired; refresh them and start again";
constexpr std::string_view kBusyText =
    "the store asks for fewer requests; lower the rate limit or wait";
constexpr std::string_view kFailedText = "the store failed inside; try again later";
constexpr std::string_view kChangedText =
    "the object has changed at the origin; digest the dataset again";

constexpr Row kRows[] = {
    {"AccessDenied",
     Code::kDenied,
     {},
     "access denied; these credentials need s3:ListBucket on the bucket and s3:GetObject on it"},
    {"AllAccessDisabled", Code::kDenied, {}, "the owner has closed the bucket; ask the owner"},
    {"InvalidAccessKeyId",
     Code::kDenied,
     {},
     "the access key does not exist there; check access key and endpoint"},
    {"SignatureDoesNotMatch",
     Code::kDenied,
     {},
     "the signature is wrong; check secret key and region"},
    {"AuthorizationHeaderMalformed",
     Code::kDenied,
     {},
     "the signature does not fit; check the region"},
    {"RequestTimeTooSkewed",
     Code::kDenied,
     {},
     "this machine's clock is off by more than 15 minutes; set the clock"},
    {"ExpiredToken", Code::kExpired, {}, kExpiredText},
    {"TokenRefreshRequired", Code::kExpired, {}, kExpiredText},
    {"ExpiredTokenException", Code::kExpired, {}, kExpiredText},
    {"InvalidToken",
     Code::kExpired,
     {},
     "the session token is not valid; set all three of key, secret and token anew"},
    {"NoSuchBucket",
     Code::kNotFound,
     {},
     "the bucket does not exist; check its name and the endpoint"},
    {"NoSuchKey",
     Code::kNotFound,
     {},
     "the object does not exist; digest the dataset again if it was deleted"},
    {"InvalidBucketName", Code::kInvalid, {}, "this is no name of a bucket; check the URL"},
    {"KeyTooLongError", Code::kInvalid, {}, "the key is too long; check the URL"},
    {"InvalidObjectState", Code::kDenied, {}, "the object is archived; restore it first"},
    {"PreconditionFailed", Code::kChanged, {}, kChangedText},
    {"InvalidRange", Code::kChanged, {}, kChangedText},
    {"SlowDown", Code::kThrottled, RetryClass::kThrottled, kBusyText},
    {"TooManyRequests", Code::kThrottled, RetryClass::kThrottled, kBusyText},
    {"Throttling", Code::kThrottled, RetryClass::kThrottled, kBusyText},
    {"RequestLimitExceeded", Code::kThrottled, RetryClass::kThrottled, kBusyText},
    {"ServiceUnavailable", Code::kThrottled, RetryClass::kThrottled, kBusyText},
    {"InternalError", Code::kUnreachable, RetryClass::kServer, kFailedText},
    {"RequestTimeout", Code::kTimeout, RetryClass::kTimeout, "the store gave up waiting"},
    {"PermanentRedirect",
     Code::kInvalid,
     {},
     "the bucket lives behind another endpoint; set endpoint or region"},
    {"TemporaryRedirect", Code::kUnreachable, RetryClass::kServer,
     "the bucket is being moved; try again later"},
};

}  // namespace

Failure s3_refusal(const std::string& what, const io::HttpResponse& answer, WallTime now) {
  const auto found = parse_s3_error(answer.body);
  if (!found) return plain_refusal(what, answer, now);
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& r) { return r.s3 == found->code; });
  if (row != std::end(kRows)) {
    return {error(row->code, "{}: {} ({}, HTTP {})", what, row->reason_and_cure, row->s3,
                  answer.status),
            row->retry, retry_after(answer, now)};
  }
  // An error after a 200 that the table does not know is one of the store.
  io::HttpResponse as_refused = answer;
  if (answer.status < 300) as_refused.status = 500;
  Failure failure = plain_refusal(what, as_refused, now);
  // What the server writes is cut and kept to printable text: it ends in logs and terminals.
  std::string said = (found->code + ": " + found->message).substr(0, 200);
  std::replace_if(
      said.begin(), said.end(), [](unsigned char c) { return c < 32 || c > 126; }, '?');
  failure.error.message += fmt::format("; the store says \"{}\"", said);
  return failure;
}

std::chrono::seconds s3_clock_ahead(const io::HttpResponse& answer, WallTime now) {
  const auto found = parse_s3_error(answer.body);
  const std::int64_t date = parse_http_date(answer.header("date"));
  if (!found || found->code != "RequestTimeTooSkewed" || date == 0) return {};
  return std::chrono::floor<std::chrono::seconds>(WallTime(Duration(date)) - now);
}

std::string s3_region_hint(const io::HttpResponse& answer) {
  std::string region(answer.header("x-amz-bucket-region"));
  if (region.empty()) {
    if (const auto found = parse_s3_error(answer.body)) region = found->region;
  }
  const bool plausible =
      region.size() <= 32 && std::all_of(region.begin(), region.end(), [](unsigned char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
      });
  return plausible ? region : std::string{};
}

}  // namespace quiver::cache
