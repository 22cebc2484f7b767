#include "cache/origin/s3_origin.h"

#include "base/guarded.h"
#include "cache/origin/http_client.h"
#include "cache/origin/s3_address.h"
#include "cache/origin/s3_error.h"
#include "cache/origin/text.h"

namespace quiver::cache {
namespace {

constexpr int kMaxEmptyPages = 100;
constexpr std::string_view kDefaultRegion = "us-east-1";

// Owns its client and the credentials, in memory only. Any thread may call; see Origin for
// failures. When the store names another region for the bucket the origin moves there once, and
// every attempt from then on is addressed and signed for it.
class S3Origin final : public Origin {
 public:
  S3Origin(const OriginSettings& settings, S3Place place, S3Address address, OriginContext context)
      : settings_(settings),
        place_(std::move(place)),
        client_(settings, context),
        where_(Where{settings.region, std::move(address), false}) {}

  Status list(const std::function<Status(ListedObject)>& each, std::stop_token stop) override;
  Result<ListedObject> head(const std::string& key, std::stop_token stop) override;
  Status read(const ReadRequest& request, MutableByteSpan out, std::stop_token stop) override {
    return client_.read(call("GET", request.key), request, out, stop);
  }
  OriginStats stats() const override { return client_.stats(); }
  std::string url() const override { return settings_.url; }

 private:
  struct Where {
    std::string region;
    S3Address address;
    bool moved;
  };

  std::string name(const std::string& key) const {
    return "s3://" + place_.bucket + "/" + place_.prefix + key;
  }
  HttpCall call(const std::string& method, const std::string& key);
  HttpCall list_call(const std::string& token);
  io::HttpRequest request(const std::string& method, const Where& where) const;
  Failure refused(const std::string& what, const io::HttpResponse& answer);
  std::optional<Failure> move(const std::string& what, const std::string& region);
  Error explain_head(const std::string& key, Error e, std::stop_token stop);

  const OriginSettings settings_;
  const S3Place place_;
  HttpClient client_;
  Guarded<Where> where_;
};

io::HttpRequest S3Origin::request(const std::string& method, const Where& where) const {
  io::HttpRequest request = client_.blank();
  request.method = method;
  if (!settings_.access_key.empty()) {
    request.sign = io::SigV4{settings_.access_key, settings_.secret_key, settings_.session_token,
                             where.region, "s3"};
  }
  return request;
}

HttpCall S3Origin::call(const std::string& method, const std::string& key) {
  HttpCall call;
  call.what = name(key);
  call.make = [this, method, key] {
    const Where where = where_.with([](const Where& w) { return w; });
    io::HttpRequest made = request(method, where);
    made.url = where.address.object(place_.prefix + key);
    if (method == "HEAD") made.headers.emplace_back("x-amz-checksum-mode", "ENABLED");
    return made;
  };
  call.refused = [this, what = call.what](const auto& answer) { return refused(what, answer); };
  call.disguised = [](std::string_view body) { return parse_s3_error(body).has_value(); };
  return call;
}

HttpCall S3Origin::list_call(const std::string& token) {
  HttpCall call = this->call("GET", "");
  call.make = [this, token] {
    std::vector<std::pair<std::string, std::string>> query = {
        {"list-type", "2"}, {"encoding-type", "url"}, {"prefix", place_.prefix}};
    if (!token.empty()) query.emplace_back("continuation-token", token);
    const Where where = where_.with([](const Where& w) { return w; });
    io::HttpRequest made = request("GET", where);
    made.url = where.address.listing(encode_query(std::move(query)));
    return made;
  };
  return call;
}

Failure S3Origin::refused(const std::string& what, const io::HttpResponse& answer) {
  const bool may_be_elsewhere =
      answer.status == 301 || answer.status == 307 || answer.status == 400 || answer.status == 403;
  const std::string region = may_be_elsewhere ? s3_region_hint(answer) : std::string{};
  if (!region.empty()) {
    if (auto moving = move(what, region)) return *std::move(moving);
  }
  return s3_refusal(what, answer, client_.wall());
}

// Nothing when the request was already made for that region: then it was refused for another
// reason.
std::optional<Failure> S3Origin::move(const std::string& what, const std::string& region) {
  const bool can_follow = settings_.endpoint.empty();
  auto address = S3Address::make(settings_.endpoint, region, place_.bucket, settings_.addressing);
  auto elsewhere = [&] {
    return error(Code::kInvalid, "{}: the bucket is in {}; set region to it{}", what, region,
                 can_follow ? "" : " and the endpoint to one of that region");
  };
  if (!address) return Failure{elsewhere()};
  return where_.with([&](Where& where) -> std::optional<Failure> {
    if (where.region == region) {
      // Another thread has moved it since this request was made, or the hint changes nothing.
      return where.moved ? std::optional(Failure{elsewhere()}) : std::nullopt;
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
    ++client_.lists;
    const HttpCall asked = list_call(token);
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
  ++client_.heads;
  auto answer = client_.fetch(call("HEAD", key), Bytes(0), stop);
  if (!answer) return explain_head(key, std::move(answer).error(), stop);
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
  HttpCall ask = call("GET", key);
  ask.make = [make = std::move(ask.make)] {
    io::HttpRequest made = make();
    made.headers.emplace_back("Range", "bytes=0-0");
    return made;
  };
  ++client_.gets;
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
