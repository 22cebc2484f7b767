#include "cache/origin/http_origin.h"

#include <thread>

#include "cache/origin/http_client.h"
#include "cache/origin/text.h"

namespace quiver::cache {
namespace {

constexpr int kMaxRedirects = 5;
constexpr Bytes kMaxIndex = 256_MiB;
constexpr std::size_t kHeadsAtOnce = 8;

// Owns its client. Any thread may call; see Origin for failures. Reads are pinned to a version by
// If-Match where the server sends strong ETags, by size and date elsewhere.
class HttpOrigin final : public Origin {
 public:
  HttpOrigin(const OriginSettings& settings, OriginContext context)
      : url_(settings.url),
        client_(settings, context, url_.substr(0, url_.find('/', url_.find("://") + 3))) {}

  Status list(const std::function<Status(ListedObject)>& each, std::stop_token stop) override;
  Result<ListedObject> head(const std::string& key, std::stop_token stop) override;
  Status read(const ReadRequest& request, MutableByteSpan out, std::stop_token stop) override {
    return client_.read(call(RequestKind::kGet, request.key), request, out, stop);
  }
  OriginStats stats() const override { return client_.stats(); }
  std::string url() const override { return url_; }

 private:
  HttpCall call(RequestKind kind, const std::string& key);
  Result<std::vector<ListedObject>> heads(const std::vector<std::string>& keys,
                                          std::stop_token stop);

  const std::string url_;
  HttpClient client_;
};

HttpCall HttpOrigin::call(RequestKind kind, const std::string& key) {
  HttpCall call;
  call.kind = kind;
  call.what = url_ + "/" + key;
  call.make = [this, kind, url = url_ + "/" + encode_path(key)] {
    io::HttpRequest request = client_.blank();
    request.method = kind == RequestKind::kHead ? "HEAD" : "GET";
    request.url = url;
    request.max_redirects = kMaxRedirects;
    return request;
  };
  call.refused = [this, what = call.what](const io::HttpResponse& answer) {
    return plain_refusal(what, answer, client_.wall());
  };
  return call;
}

Status HttpOrigin::list(const std::function<Status(ListedObject)>& each, std::stop_token stop) {
  auto index = client_.fetch(call(RequestKind::kList, "index.txt"), kMaxIndex, stop);
  if (!index) {
    if (index.error().code != Code::kNotFound) return std::move(index).error();
    return error(Code::kNotFound,
                 "{} has no list of its objects; put their keys, one a line, into {}/index.txt",
                 url_, url_);
  }
  std::string_view rest = index->body;
  while (!rest.empty()) {
    std::vector<std::string> keys;
    while (!rest.empty() && keys.size() < kHeadsAtOnce) {
      std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.empty()) keys.emplace_back(line);
    }
    auto objects = heads(keys, stop);
    if (!objects) return std::move(objects).error();
    for (auto& object : *objects) {
      if (auto taken = each(std::move(object)); !taken) return taken;
    }
  }
  return {};
}

// One line of the index costs one HEAD, a few of them at a time.
Result<std::vector<ListedObject>> HttpOrigin::heads(const std::vector<std::string>& keys,
                                                    std::stop_token stop) {
  std::vector<Result<ListedObject>> answers(keys.size(), Result<ListedObject>(ListedObject{}));
  {
    std::vector<std::jthread> askers;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      askers.emplace_back([&, i] { answers[i] = head(keys[i], stop); });
    }
  }
  std::vector<ListedObject> objects;
  for (auto& answer : answers) {
    if (!answer) return std::move(answer).error();
    objects.push_back(*std::move(answer));
  }
  return objects;
}

Result<ListedObject> HttpOrigin::head(const std::string& key, std::stop_token stop) {
  const HttpCall asked = call(RequestKind::kHead, key);
  auto answer = TRY(client_.fetch(asked, Bytes(0), stop));
  const auto size = parse_number(answer.header("content-length"));
  if (!size) return error(Code::kInvalid, "{}: the server does not tell its size", asked.what);
  return ListedObject{key,
                      {Bytes(*size), std::string(answer.header("etag")),
                       parse_http_date(answer.header("last-modified"))},
                      std::nullopt};
}

// Whether what follows the host is a port, or nothing.
bool ends_in_port(std::string_view server) {
  if (server.starts_with('[')) server.remove_prefix(std::min(server.find(']'), server.size()));
  const auto colon = server.find(':');
  return colon == server.npos || parse_number(server.substr(colon + 1)).has_value();
}

}  // namespace

Result<std::unique_ptr<Origin>> make_http_origin(const OriginSettings& given,
                                                 OriginContext context) {
  OriginSettings settings = given;
  const auto host = settings.url.find("://") + 3;
  const auto path = std::min(settings.url.find_first_of("/?#", host), settings.url.size());
  const std::string_view server = std::string_view(settings.url).substr(host, path - host);
  if (server.empty()) return error(Code::kInvalid, "{} names no host", settings.url);
  // A password may hold a '/': what it begins with then stands where a port is.
  if (server.find('@') != server.npos || !ends_in_port(server)) {
    return error(Code::kInvalid,
                 "{} holds a user or password, or a port that is none; write http(s)://host[:port]"
                 "/path: HTTP origins are read without credentials",
                 without_credentials(settings.url));
  }
  if (settings.url.find_first_of("?#") != std::string::npos) {
    return error(Code::kInvalid, "{} has a query; name the folder of the dataset",
                 settings.url.substr(0, settings.url.find_first_of("?#")));
  }
  if (settings.url.ends_with('/')) settings.url.pop_back();
  return std::make_unique<HttpOrigin>(settings, context);
}

}  // namespace quiver::cache
