#include "cache/origin/http_client.h"

#include <algorithm>

#include "cache/origin/ranged_read.h"
#include "cache/origin/text.h"

namespace quiver::cache {
namespace {

constexpr std::chrono::seconds kLongestRetryAfter{3600};  // the policy bounds it further

Waiter waiter_of(const OriginContext& context) {
  return context.wait ? context.wait : real_waiter();
}

}  // namespace

std::chrono::milliseconds retry_after(const io::HttpResponse& answer, WallTime now) {
  const auto text = answer.header("retry-after");
  std::chrono::nanoseconds wish{};
  if (const auto seconds = parse_number(text)) {
    wish = std::chrono::seconds(std::min<std::uint64_t>(*seconds, kLongestRetryAfter.count()));
  } else if (const auto date = parse_http_date(text)) {
    wish = WallTime(std::chrono::nanoseconds(date)) - now;
  }
  const auto bounded = std::clamp<std::chrono::nanoseconds>(wish, {}, kLongestRetryAfter);
  return std::chrono::duration_cast<std::chrono::milliseconds>(bounded);
}

Failure plain_refusal(const std::string& what, const io::HttpResponse& answer, WallTime now) {
  const int status = answer.status;
  auto says = [&](Code code, std::string_view why) {
    return error(code, "{}: {} (HTTP {})", what, why, status);
  };
  switch (status) {
    case 401:
    case 403:
      return {says(Code::kDenied, "access denied; check the credentials and their permissions")};
    case 404:
    case 410:
      return {says(Code::kNotFound, "no such object; check the URL, or digest the dataset again")};
    case 412:
    case 416:
      return {
          says(Code::kChanged, "the object has changed at the origin; digest the dataset again")};
    case 429:
    case 503:
      return {says(Code::kThrottled, "the server asks for fewer requests; lower the rate limit"),
              RetryClass::kThrottled, retry_after(answer, now)};
    case 408:
      return {says(Code::kTimeout, "the server gave up waiting"), RetryClass::kTimeout};
    default:
      break;
  }
  if (status >= 500) {
    return {says(Code::kUnreachable, "the server failed"), RetryClass::kServer,
            retry_after(answer, now)};
  }
  if (status >= 300 && status < 400) {
    return {says(Code::kInvalid, "the server redirects without saying where; name the final URL")};
  }
  return {says(Code::kInvalid, "the server does not accept the request; check the URL")};
}

HttpClient::HttpClient(const OriginSettings& settings, OriginContext context,
                       const std::string& root)
    : settings_(settings),
      context_(context),
      retrier_({.max_attempts = settings.max_attempts, .budget = settings.retry_budget},
               context.clock, context.seed, waiter_of(context)),
      waiter_(waiter_of(context)),
      pace_(pace_of(context, root)) {}

io::HttpRequest HttpClient::blank() const {
  io::HttpRequest request;
  request.ca_file = settings_.ca_file;
  request.verify_tls = settings_.verify_tls;
  request.connect_timeout = settings_.connect_timeout;
  request.stall_timeout = settings_.stall_timeout;
  request.proxies = settings_.proxies;
  return request;
}

OriginStats HttpClient::stats() const {
  OriginStats stats;
  const auto sent = [&](RequestKind kind) { return sent_[static_cast<std::size_t>(kind)].load(); };
  stats.lists = sent(RequestKind::kList);
  stats.heads = sent(RequestKind::kHead);
  stats.gets = sent(RequestKind::kGet);
  stats.permitted = pace_->requests.window();
  stats.body_bytes = Bytes(body_bytes_);
  stats.retries_by_class = retrier_.counts();
  for (const auto count : stats.retries_by_class) stats.retries += count;
  return stats;
}

Status HttpClient::admit(Bytes bytes, std::stop_token stop) {
  body_bytes_ += bytes.value;
  const Duration pause = pace_->bytes.reserve(bytes, settings_.rate_limit);
  if (pause <= Duration{}) return {};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(pause);
  if (!waiter_(ms, stop)) {
    return error(Code::kCancelled, "reading the origin was cancelled");
  }
  return {};
}

std::optional<Failure> HttpClient::paced(RequestKind kind,
                                         const std::function<std::optional<Failure>()>& attempt,
                                         std::stop_token stop) {
  auto slot = pace_->requests.begin(waiter_, stop);
  if (!slot) return Failure{std::move(slot).error()};
  ++sent_[static_cast<std::size_t>(kind)];
  auto failure = attempt();
  using Outcome = RequestWindow::Outcome;
  if (!failure) {
    slot->end(Outcome::kAnswered);
  } else if (failure->retry == RetryClass::kThrottled) {
    slot->end(Outcome::kThrottled, failure->retry_after);
  }
  return failure;
}

Failure HttpClient::transport_failure(Error e, io::HttpPhase reached) {
  switch (e.code) {
    case Code::kTimeout:
      return {std::move(e), RetryClass::kTimeout};
    case Code::kShort:
      return {std::move(e), RetryClass::kShort};
    case Code::kUnreachable:
      if (reached == io::HttpPhase::kResolving) return {std::move(e), RetryClass::kName};
      if (reached == io::HttpPhase::kConnecting) return {std::move(e), RetryClass::kConnect};
      return {std::move(e), RetryClass::kReset};
    default:
      return {std::move(e)};
  }
}

Result<io::HttpResponse> HttpClient::fetch(const HttpCall& call, Bytes limit,
                                           std::stop_token stop) {
  io::HttpResponse kept;
  auto attempt = [&]() -> std::optional<Failure> {
    io::HttpRequest request = call.make();
    io::HttpPhase reached{};
    request.reached = &reached;
    request.max_body = limit;
    auto answer = context_.http.perform(request, nullptr, stop);
    if (!answer) {
      return transport_failure(std::move(answer).error().context(call.what), reached);
    }
    if (answer->status < 200 || answer->status > 299 || call.disguised(answer->body)) {
      return call.refused(*answer);
    }
    kept = *std::move(answer);
    return std::nullopt;
  };
  auto done = retrier_.run([&] { return paced(call.kind, attempt, stop); },
                           [] { return std::uint64_t{0}; }, stop);
  if (!done) return std::move(done).error();
  return kept;
}

Status HttpClient::read(const HttpCall& call, const ReadRequest& request, MutableByteSpan out,
                        std::stop_token stop) {
  if (out.empty()) return {};
  if (auto sane = check_range(request, out.size()); !sane) return sane;
  RangedRead reader(*this, call, request, out, stop);
  const auto attempt = [&] { return reader.attempt(); };
  return retrier_.run([&] { return paced(call.kind, attempt, stop); },
                      [&] { return reader.furthest(); }, stop);
}

}  // namespace quiver::cache
