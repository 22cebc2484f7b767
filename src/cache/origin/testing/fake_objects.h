// A web server and a small S3 over one map of objects, for tests without a real store.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/guarded.h"
#include "cache/origin/text.h"
#include "io/testing/scripted_http.h"

namespace quiver::cache::testing {

using io::testing::ScriptedReply;
using io::testing::ScriptedRequest;

// Answers as a correct server would; a test changes the answers to break one thing at a time. Any
// thread may call.
class FakeObjects {
 public:
  void put(const std::string& key, std::string bytes) {
    objects_.with([&](auto& o) { o.by_key[key] = {std::move(bytes), ++o.versions}; });
  }
  void remove(const std::string& key) {
    objects_.with([&](auto& o) { o.by_key.erase(key); });
  }

  // Objects at /base/<key>, their keys in /base/index.txt.
  ScriptedReply web(const ScriptedRequest& request) const {
    const std::string key = decode_percent(request.target.substr(kBase.size())).value_or("");
    if (key == "index.txt") {
      std::string index;
      for (const auto& [name, object] : copy()) index += name + "\n";
      return {.body = index};
    }
    return object(request, key);
  }

  // The bucket "b" in path style: ListObjectsV2 in pages of `page`, HEAD, GET.
  ScriptedReply s3(const ScriptedRequest& request, std::size_t page = 3) const {
    if (request.target.starts_with("/b/?")) return listing(request.target, page);
    const std::string key = decode_percent(request.target.substr(3)).value_or("");
    ScriptedReply reply = object(request, key);
    if (reply.status == 404) reply.body = error_xml("NoSuchKey");
    if (reply.status == 412) reply.body = error_xml("PreconditionFailed");
    if (reply.status == 416) reply.body = error_xml("InvalidRange");
    return reply;
  }

  static std::string error_xml(const std::string& code, const std::string& extra = {}) {
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>" + code +
           "</Code><Message>scripted</Message>" + extra + "</Error>";
  }
  static constexpr std::string_view kBase = "/base/";

 private:
  struct Object {
    std::string bytes;
    int version;
    std::string etag() const { return "\"v" + std::to_string(version) + "\""; }
  };
  struct Objects {
    std::map<std::string, Object> by_key;
    int versions = 0;
  };

  std::map<std::string, Object> copy() const {
    return objects_.with([](const auto& o) { return o.by_key; });
  }

  ScriptedReply object(const ScriptedRequest& request, const std::string& key) const {
    const auto all = copy();
    const auto at = all.find(key);
    if (at == all.end()) return {.status = 404};
    const auto& [bytes, version] = at->second;
    ScriptedReply reply{.headers = {{"ETag", at->second.etag()},
                                    {"Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"}}};
    const std::string match = request.header("if-match");
    if (!match.empty() && match != at->second.etag()) return {.status = 412};
    const auto range = request.range();
    if (!range) {
      reply.body = bytes;
      return reply;
    }
    const auto [first, last] = *range;
    if (first >= bytes.size()) return {.status = 416};
    reply.status = 206;
    reply.body = bytes.substr(first, last - first + 1);
    reply.headers.emplace_back("Content-Range", "bytes " + std::to_string(first) + "-" +
                                                    std::to_string(first + reply.body.size() - 1) +
                                                    "/" + std::to_string(bytes.size()));
    return reply;
  }

  static std::string parameter(const std::string& target, const std::string& name) {
    auto start = target.find("&" + name + "=");
    if (start == target.npos) start = target.find("?" + name + "=");
    if (start == target.npos) return {};
    start += name.size() + 2;
    return decode_percent(target.substr(start, target.find('&', start) - start)).value_or("");
  }

  ScriptedReply listing(const std::string& target, std::size_t page) const {
    const std::string prefix = parameter(target, "prefix");
    const std::string token = parameter(target, "continuation-token");
    std::string rows, last;
    std::size_t count = 0;
    bool truncated = false;
    for (const auto& [key, object] : copy()) {
      if (!key.starts_with(prefix) || (!token.empty() && key <= token.substr(2))) continue;
      if (count++ == page) {
        truncated = true;
        break;
      }
      last = key;
      rows += "<Contents><Key>" + encode_path(key) +
              "</Key><LastModified>1994-11-06T08:49:37.123Z</LastModified><ETag>&quot;v" +
              std::to_string(object.version) + "&quot;</ETag><Size>" +
              std::to_string(object.bytes.size()) + "</Size></Contents>";
    }
    std::string xml =
        "<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType>"
        "<IsTruncated>" +
        std::string(truncated ? "true" : "false") + "</IsTruncated>" + rows;
    // Opaque and not a key, as real tokens are.
    if (truncated) {
      xml += "<NextContinuationToken><![CDATA[t=" + last + "]]></NextContinuationToken>";
    }
    return {.body = xml + "</ListBucketResult>"};
  }

  Guarded<Objects> objects_;
};

}  // namespace quiver::cache::testing
