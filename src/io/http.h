// One HTTP exchange: the seam below which libcurl lives and scripted transports take its place.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "base/units.h"

namespace quiver::io {

// How far an exchange came before it ended; connecting includes TLS.
enum class HttpPhase { kResolving, kConnecting, kWaiting, kReceiving };

struct HttpResponse {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;  // of an answer other than 2xx (its first 64 KiB), or when no sink was given
  Bytes received;    // bytes of body on the wire

  std::string_view header(std::string_view lower_case_name) const;  // empty when absent
};

struct SigV4 {
  std::string access_key, secret_key, session_token, region, service = "s3";
  std::string date = {};  // "20261201T050000Z"; empty: that of this machine's clock
};

// As curl's variables http_proxy, https_proxy and no_proxy have them; empty: none. Those of this
// process's own environment never count.
struct HttpProxies {
  std::string http, https, except;
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;  // with the path and query already encoded as they are to be signed and sent
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::optional<SigV4> sign;  // x-amz-date, x-amz-content-sha256 and the token are added
  std::string ca_file;        // empty: libcurl's default and its environment variables
  bool verify_tls = true;
  int max_redirects = 0;  // Range is sent again, credentials never to another host
  // Which redirects are followed, by their answer; the others are the result. Empty: all.
  std::function<bool(const HttpResponse&)> follows;
  // Other hosts that a redirected request is signed for, anew; empty: none.
  std::function<bool(std::string_view host)> signs_for;
  HttpProxies proxies;
  std::chrono::milliseconds connect_timeout{5000};
  // The transfer is given up when fewer than 1 byte/s arrive for this long, or in all after total.
  std::chrono::milliseconds stall_timeout{30000};
  std::chrono::milliseconds total_timeout{300000};
  Bytes max_body = Bytes(std::uint64_t{1} << 30);  // a longer body is kCorrupt
  // Called once with status and headers, before the body; an error ends the exchange with it.
  std::function<Status(const HttpResponse&)> on_headers;
  HttpPhase* reached = nullptr;  // where given, set on failure
};

// Called with each piece of the body of a 2xx answer; an error ends the exchange with it.
using BodySink = std::function<Status(ByteSpan)>;

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  // One attempt, no retry. Any number of threads may call; connections are kept and reused between
  // calls. An answer of any status is a value; errors are kUnreachable, kTimeout, kShort (the body
  // ended early), kCorrupt (too long, or no HTTP), kDenied (TLS trust), kInvalid (the URL, the CA
  // file, too many redirects) and kCancelled.
  virtual Result<HttpResponse> perform(const HttpRequest& request, const BodySink& sink,
                                       std::stop_token stop) = 0;
};

// libcurl, HTTP/1.1, at most `max_connections` at a time (further callers wait).
std::unique_ptr<HttpTransport> make_curl_transport(int max_connections);

}  // namespace quiver::io
