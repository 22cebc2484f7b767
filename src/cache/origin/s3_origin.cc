#include "cache/origin/s3_origin.h"

#include <atomic>

#include "base/guarded.h"
#include "cache/origin/http_client.h"
#include "cache/origin/s3_address.h"
#include "cache/origin/s3_error.h"
#include "cache/origin/text.h"

namespace quiver::cache {
namespace {

constexpr int kMaxEmptyPages = 100;
constexpr int kMaxRedirects = 5;
constexpr std::chrono::seconds kSkew{60};  // stores bear some minutes
constexpr std::string_view kDefaultRegion = "us-east-1";

// Owns its client, and the credentials together with who renews them, in memory only. Any thread
// may call; see Origin for failures. When the store names another region for the bucket the origin
// moves there once, and every attempt from then on is addressed and signed for it; when it says
// that our clock is wrong, signed for its own time.
class S3Origin final : public Origin {
 public:
  S3Origin(const OriginSettings& settings, S3Place place, S3Address address, OriginContext context)
      : settings_(settings),
        place_(std::move(place)),
        client_(settings, context, settings.endpoint + "/" + place_.bucket),
        credentials_(context.credentials
                         ? context.credentials
                         : std::make_shared<RenewableCredentials>(settings.credentials())),
        where_(Where{settings.region, std::move(address), false}) {}

  Status list(const std::function<Status(ListedObject)>& each, std::stop_token stop) override;
  Result<ListedObject> head(const std::string& key, std::stop_token stop) override;
  Status read(const ReadRequest& request, MutableByteSpan out, std::stop_token stop) override {
    return client_.read(call(RequestKind::kGet, request.key, stop), request, out, stop);
  }
  OriginStats stats() const override { return client_.stats(); }
  std::string url() const override { return settings_.url; }

 private:
  struct Where {
    std::string region;
    S3Address address;
    bool moved;
  };
  // What an attempt was made for and with.
  struct Asked {
    Where where;
    std::uint64_t credentials = 0;  // their version
    std::chrono::seconds ahead{};   // the store's clock, of ours
  };

  std::string name(const std::string& key) const {
    return "s3://" + place_.bucket + "/" + place_.prefix + key;
  }
  HttpCall call_at(std::string what, RequestKind kind,
                   std::function<std::string(const S3Address&)> url, std::stop_token stop);
  HttpCall call(RequestKind kind, const std::string& key, std::stop_token stop);
  HttpCall list_call(const std::string& token, std::stop_token stop);
  io::HttpRequest request(const std::string& method, const Asked& asked,
                          const Credentials& credentials) const;
  Failure refused(const std::string& what, const Asked& asked, const io::HttpResponse& answer,
                  std::stop_token stop);
  std::optional<Failure> move(const std::string& what, const Where& asked,
                              const std::string& region, bool redirected);
  bool changed_since(const Asked& asked) const {
    return credentials_->now().version != asked.credentials || ahead_.load() != asked.ahead;
  }
  Error explain_head(const std::string& key, Error e, std::stop_token stop);

  const OriginSettings settings_;
  const S3Place place_;
  HttpClient client_;
  const std::shared_ptr<RenewableCredentials> credentials_;
  Guarded<Where> where_;
  std::atomic<std::chrono::seconds> ahead_{};
};

io::HttpRequest S3Origin::request(const std::string& method, const Asked& asked,
                                  const Credentials& credentials) const {
  io::HttpRequest request = client_.blank();
  request.method = method;
  if (method == "HEAD") request.headers.emplace_back("x-amz-checksum-mode", "ENABLED");
  request.max_redirects = kMaxRedirects;
  // A hint of the region is better than a redirect: the origin then moves for good.
  request.follows = [region = asked.where.region](const io::HttpResponse& answer) {
    const std::string hint = s3_region_hint(answer);
    return hint.empty() || hint == region;
  };
  if (!credentials.access_key.empty()) {
    request.sign = io::SigV4{credentials.access_key, credentials.secret_key,
                             credentials.session_token, asked.where.region, "s3"};
    if (asked.ahead.count() != 0) request.sign->date = signing_date(client_.wall() + asked.ahead);
    request.signs_for = [this](std::string_view host) {
      return of_same_store(settings_.endpoint, host);
    };
  }
  return request;
}

// `address` gives the URL at a place. Each attempt is made for the place of that moment, which its
// refusal is then judged by: another attempt may have moved the origin meanwhile, and somebody may
// have renewed the credentials.
HttpCall S3Origin::call_at(std::string what, RequestKind kind,
                           std::function<std::string(const S3Address&)> url, std::stop_token stop) {
  const auto asked = std::make_shared<Asked>();
  HttpCall call;
  call.what = what;
  call.kind = kind;
  call.make = [this, kind, asked, url = std::move(url)] {
    const RenewableCredentials::Now& with = credentials_->now();
    *asked = Asked{where_.with([](const Where& w) { return w; }), with.version, ahead_};
    io::HttpRequest made = request(kind == RequestKind::kHead ? "HEAD" : "GET", *asked, with.keys);
    made.url = url(asked->where.address);
    return made;
  };
  call.refused = [this, asked, what = std::move(what), stop](const auto& answer) {
    return refused(what, *asked, answer, stop);
  };
  call.disguised = [](std::string_view body) { return parse_s3_error(body).has_value(); };
  return call;
}

HttpCall S3Origin::call(RequestKind kind, const std::string& key, std::stop_token stop) {
  return call_at(
      name(key), kind,
      [whole = place_.prefix + key](const S3Address& address) { return address.object(whole); },
      std::move(stop));
}

HttpCall S3Origin::list_call(const std::string& token, std::stop_token stop) {
  std::vector<std::pair<std::string, std::string>> query = {
      {"list-type", "2"}, {"encoding-type", "url"}, {"prefix", place_.prefix}};
  if (!token.empty()) query.emplace_back("continuation-token", token);
  return call_at(
      name(""), RequestKind::kList,
      [encoded = encode_query(std::move(query))](const S3Address& address) {
        return address.listing(encoded);
      },
      std::move(stop));
}

Failure S3Origin::refused(const std::string& what, const Asked& asked,
                          const io::HttpResponse& answer, std::stop_token stop) {
  const bool may_be_elsewhere =
      answer.status == 301 || answer.status == 307 || answer.status == 400 || answer.status == 403;
  const std::string region = may_be_elsewhere ? s3_region_hint(answer) : std::string{};
  if (!region.empty()) {
    const bool redirected = answer.status < 400;
    if (auto moving = move(what, asked.where, region, redirected)) return *std::move(moving);
  }
  Failure failure = s3_refusal(what, answer, client_.wall());
  if (failure.error.code == Code::kExpired && credentials_->newer_than(asked.credentials, stop)) {
    failure.retry = RetryClass::kExpired;
  }
  const auto ahead = s3_clock_ahead(answer, client_.wall());
  if (std::chrono::abs(ahead - asked.ahead) > kSkew && ahead.count() != 0) {
    ahead_ = ahead;
    failure.retry = RetryClass::kClock;
  }
  return failure;
}

// Nothing when the request was already made for that region: then it was refused for another
// reason.
std::optional<Failure> S3Origin::move(const std::string& what, const Where& asked,
                                      const std::string& region, bool redirected) {
  const bool can_follow = settings_.endpoint.empty();
  auto address = S3Address::make(settings_.endpoint, region, place_.bucket, settings_.addressing);
  auto elsewhere = [&] {
    return error(Code::kInvalid, "{}: the bucket is in {}; set region to it{}", what, region,
                 can_follow ? "" : " and the endpoint to one of that region");
  };
  if (!address) return Failure{elsewhere()};
  return where_.with([&](Where& where) -> std::optional<Failure> {
    // Of many first requests one moves the origin; the others only have to be made anew.
    if (where.moved != asked.moved) return Failure{elsewhere(), RetryClass::kRegion};
    if (where.region == region) {
      return redirected && where.moved ? std::optional(Failure{elsewhere()}) : std::nullopt;
    }
    if (where.moved) return Failure{elsewhere()};
    where = Where{region, *address, true};
    return Failure{elsewhere(), RetryClass::kRegion};
  });
}

Status S3Origin::list(const std::function<Status(ListedObject)>& each, std::stop_token stop) {
  std::string token;
  int empty_pages = 0;
  for (;;) {
    const HttpCall asked = list_call(token, stop);
    auto answer = client_.fetch(asked, kMaxS3Xml, stop);
    if (!answer) return std::move(answer).error();
    auto page = parse_s3_page(answer->body);
    if (!page) return std::move(page).error().context(asked.what);
    for (auto& object : page->objects) {
      if (!object.key.starts_with(place_.prefix)) {
        return error(Code::kCorrupt, "{}: the listing holds a key of another folder", asked.what);
      }
      object.key.erase(0, place_.prefix.size());
      if (object.key.empty()) continue;  // the marker of the folder itself
      if (auto taken = each(std::move(object)); !taken) return taken;
    }
    if (page->next.empty()) return {};
    empty_pages = page->objects.empty() ? empty_pages + 1 : 0;
    if (page->next == token || empty_pages > kMaxEmptyPages) {
      return error(Code::kCorrupt, "{}: the listing does not end", asked.what);
    }
    token = std::move(page->next);
  }
}

Result<ListedObject> S3Origin::head(const std::string& key, std::stop_token stop) {
  const Asked before{{}, credentials_->now().version, ahead_};
  auto answer = client_.fetch(call(RequestKind::kHead, key, stop), Bytes(0), stop);
  if (!answer) {
    Error why = explain_head(key, std::move(answer).error(), stop);
    return changed_since(before) ? head(key, stop) : Result<ListedObject>(std::move(why));
  }
  const auto size = parse_number(answer->header("content-length"));
  if (!size) return error(Code::kCorrupt, "{}: the store does not tell its size", name(key));
  ListedObject object{key,
                      {Bytes(*size), std::string(answer->header("etag")),
                       parse_http_date(answer->header("last-modified"))},
                      std::nullopt};
  // A composite checksum (of a multipart upload) is not that of the object's bytes; one carries a
  // "-N" behind it, which is no base64 of 32 bytes.
  if (answer->header("x-amz-checksum-type") != "COMPOSITE") {
    object.sha256 = parse_base64_sha256(answer->header("x-amz-checksum-sha256"));
  }
  return object;
}

// The refusal of a HEAD has no body that could say why: the same question as a GET of one byte has.
Error S3Origin::explain_head(const std::string& key, Error e, std::stop_token stop) {
  if (e.code != Code::kInvalid && e.code != Code::kDenied && e.code != Code::kNotFound) return e;
  HttpCall ask = call(RequestKind::kGet, key, stop);
  ask.make = [make = std::move(ask.make)] {
    io::HttpRequest made = make();
    made.headers.emplace_back("Range", "bytes=0-0");
    return made;
  };
  auto answer = client_.fetch(ask, kMaxS3Xml, stop);
  return answer ? e : std::move(answer).error();
}

}  // namespace

Result<std::unique_ptr<Origin>> make_s3_origin(const OriginSettings& given, OriginContext context) {
  OriginSettings settings = given;
  auto place = TRY(parse_s3_url(settings.url));
  if (settings.region.empty()) settings.region = kDefaultRegion;
  if (settings.access_key.empty() != settings.secret_key.empty()) {
    return error(Code::kInvalid, "{}: set both access key and secret key, or neither",
                 settings.url);
  }
  auto address =
      TRY(S3Address::make(settings.endpoint, settings.region, place.bucket, settings.addressing));
  return std::make_unique<S3Origin>(settings, std::move(place), std::move(address), context);
}

}  // namespace quiver::cache
