#include "io/curl_exchange.h"

#include <algorithm>
#include <cctype>

namespace quiver::io {
namespace {

constexpr std::size_t kMaxHeaderBytes = 256 << 10;
constexpr std::size_t kMaxErrorBody = 64 << 10;
constexpr long kBufferBytes = 256 << 10;
constexpr int kPollMs = 1000;

std::string_view trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

bool one_line(std::string_view s) {
  return s.find_first_of(std::string_view("\r\n\0", 3)) == s.npos;
}

// A segment of the path that is "." or "..", also in the encoded forms that URL parsers know.
bool has_dot_segments(std::string_view url) {
  const std::string_view path = url.substr(0, url.find('?'));
  for (std::size_t at = path.find('/'); at != path.npos; at = path.find('/', at + 1)) {
    std::string_view segment = path.substr(at + 1, path.find('/', at + 1) - at - 1);
    int dots = 0;
    while (!segment.empty()) {
      const bool plain = segment.starts_with('.');
      if (!plain && !segment.starts_with("%2e") && !segment.starts_with("%2E")) break;
      segment.remove_prefix(plain ? 1 : 3);
      ++dots;
    }
    if (segment.empty() && (dots == 1 || dots == 2)) return true;
  }
  return false;
}

// Where the request goes, for messages: without query, which may hold a token.
std::string_view place(const HttpRequest& request) {
  return std::string_view(request.url).substr(0, request.url.find('?'));
}

}  // namespace

Result<HttpResponse> CurlExchange::run(std::stop_token stop) {
  if (auto ready = prepare(); !ready) return std::move(ready).error();
  auto code = drive(stop);
  curl_multi_remove_handle(handle_.multi.get(), handle_.easy.get());
  Result<HttpResponse> result = std::move(response_);
  if (!code) {
    result = std::move(code).error();
  } else if (failed_) {
    result = *std::move(failed_);
  } else if (*code != CURLE_OK) {
    result = failure(*code);
  }
  if (!result && request_.reached) *request_.reached = phase();
  return result;
}

Status CurlExchange::prepare() {
  CURL* easy = handle_.easy.get();
  curl_easy_reset(easy);
  if (!one_line(request_.url) || !one_line(request_.method)) {
    return error(Code::kInvalid, "the URL or method of a request holds a line break");
  }
  curl_easy_setopt(easy, CURLOPT_URL, request_.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  // '..' in a key is bytes, not navigation. Only where there is any: newer versions of libcurl
  // (8.14) refuse to sign with it.
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, has_dot_segments(request_.url) ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  // A new connection goes where the name leads now: connections are kept, so that there are few.
  curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
  // An upload hardly waits for "100 Continue". A header "Expect:" would turn it off, but
  // libcurl 7.88 signs that header without sending it.
  curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "quiver");
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(request_.connect_timeout.count()));
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, text_.data());
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &CurlExchange::on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &CurlExchange::on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, this);
  prepare_tls();
  prepare_proxy();
  prepare_signature();
  if (auto ready = prepare_method(); !ready) return ready;
  return prepare_headers();
}

Status CurlExchange::prepare_method() {
  CURL* easy = handle_.easy.get();
  const std::string& method = request_.method;
  if (method == "GET") {
    curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
  } else if (method == "HEAD") {
    curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  } else if (method == "PUT" || method == "POST") {
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(request_.body.size()));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request_.body.data());
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method.c_str());
  } else if (method == "DELETE") {
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method.c_str());
  } else {
    return error(Code::kInvalid, "the HTTP method {} is not supported", method);
  }
  return {};
}

Status CurlExchange::prepare_headers() {
  curl_slist* list = nullptr;
  auto add = [&](const std::string& line) {
    curl_slist* longer = curl_slist_append(list, line.c_str());
    if (longer) list = longer;
    return longer != nullptr;
  };
  bool ok = true;
  for (const auto& [name, value] : request_.headers) {
    if (!one_line(name) || !one_line(value)) {
      curl_slist_free_all(list);
      return error(Code::kInvalid, "a header of a request to {} holds a line break",
                   place(request_));
    }
    ok = ok && add(name + ": " + value);
  }
  if (!request_.body.empty()) ok = ok && add("Content-Type: application/octet-stream");
  if (request_.sign) {
    ok = ok && add("x-amz-content-sha256: " + sha256(as_bytes(request_.body)).hex());
    const std::string& token = request_.sign->session_token;
    if (!one_line(token)) {
      curl_slist_free_all(list);
      return error(Code::kInvalid, "the session token holds a line break");
    }
    if (!token.empty()) ok = ok && add("x-amz-security-token: " + token);
    // libcurl signs for this date where there is one.
    const std::string& date = request_.sign->date;
    if (!date.empty()) ok = ok && add("X-Amz-Date: " + date);
  }
  headers_.reset(list);
  if (!ok) return error(Code::kNoSpace, "no memory for the headers of a request");
  curl_easy_setopt(handle_.easy.get(), CURLOPT_HTTPHEADER, headers_.get());
  return {};
}

void CurlExchange::prepare_tls() {
  CURL* easy = handle_.easy.get();
  if (!request_.ca_file.empty()) {
    curl_easy_setopt(easy, CURLOPT_CAINFO, request_.ca_file.c_str());
    curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);  // this file decides, not the system too
  }
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, request_.verify_tls ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, request_.verify_tls ? 2L : 0L);
}

// Both options are always set, if to nothing: else libcurl looks into the environment.
void CurlExchange::prepare_proxy() {
  const bool tls = request_.url.starts_with("https:");
  const HttpProxies& proxies = request_.proxies;
  CURL* easy = handle_.easy.get();
  curl_easy_setopt(easy, CURLOPT_PROXY, (tls ? proxies.https : proxies.http).c_str());
  curl_easy_setopt(easy, CURLOPT_NOPROXY, proxies.except.c_str());
}

void CurlExchange::prepare_signature() {
  if (!request_.sign) return;
  CURL* easy = handle_.easy.get();
  const std::string scope = "aws:amz:" + request_.sign->region + ":" + request_.sign->service;
  curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, scope.c_str());
  curl_easy_setopt(easy, CURLOPT_USERNAME, request_.sign->access_key.c_str());
  curl_easy_setopt(easy, CURLOPT_PASSWORD, request_.sign->secret_key.c_str());
}

Result<CURLcode> CurlExchange::drive(std::stop_token stop) {
  CURLM* multi = handle_.multi.get();
  if (curl_multi_add_handle(multi, handle_.easy.get()) != CURLM_OK) {
    return error(Code::kIo, "libcurl refused the request to {}", place(request_));
  }
  std::stop_callback wake(stop, [multi] { curl_multi_wakeup(multi); });
  const SteadyTime start = std::chrono::steady_clock::now();
  progress_ = start;
  for (;;) {
    if (stop.stop_requested()) {
      return error(Code::kCancelled, "the request to {} was cancelled", place(request_));
    }
    int running = 0;
    if (curl_multi_perform(multi, &running) != CURLM_OK) {
      return error(Code::kIo, "libcurl failed at the request to {}", place(request_));
    }
    if (running == 0) break;
    if (auto late = overdue(start)) return *std::move(late);
    const auto patience = std::min(request_.stall_timeout, request_.total_timeout);
    const int wait_ms =
        static_cast<int>(std::clamp<std::int64_t>(patience.count() / 4, 1, kPollMs));
    curl_multi_poll(multi, nullptr, 0, wait_ms, nullptr);
  }
  int left = 0;
  CURLMsg* message = curl_multi_info_read(multi, &left);
  if (!message || message->msg != CURLMSG_DONE) {
    return error(Code::kIo, "libcurl ended the request to {} without a result", place(request_));
  }
  return message->data.result;
}

// A stall is counted from the last byte that came, or from the return of the sink, so that a reader
// under a rate limit is not a stalled server.
std::optional<Error> CurlExchange::overdue(SteadyTime start) const {
  const SteadyTime now = std::chrono::steady_clock::now();
  if (now - start > request_.total_timeout) {
    return error(Code::kTimeout, "{} did not finish within {} ms ({} bytes came)", place(request_),
                 request_.total_timeout.count(), response_.received.value);
  }
  if (now - progress_ > request_.stall_timeout) {
    return error(Code::kTimeout, "{} sent nothing for {} ms ({} bytes came)", place(request_),
                 request_.stall_timeout.count(), response_.received.value);
  }
  return std::nullopt;
}

HttpPhase CurlExchange::phase() const {
  if (headers_done_) return HttpPhase::kReceiving;
  CURL* easy = handle_.easy.get();
  auto passed = [easy](CURLINFO what) {
    curl_off_t us = 0;
    return curl_easy_getinfo(easy, what, &us) == CURLE_OK && us > 0;
  };
  if (passed(CURLINFO_PRETRANSFER_TIME_T)) return HttpPhase::kWaiting;
  if (passed(CURLINFO_NAMELOOKUP_TIME_T)) return HttpPhase::kConnecting;
  return HttpPhase::kResolving;
}

Error CurlExchange::failure(CURLcode code) {
  const char* why = text_[0] ? text_.data() : curl_easy_strerror(code);
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PROXY:
      return error(Code::kUnreachable, "cannot connect to {}: {}", place(request_), why);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return tls_failure(code);
    case CURLE_OPERATION_TIMEDOUT:
      return error(Code::kTimeout, "no connection to {} within {} ms: {}", place(request_),
                   request_.connect_timeout.count(), why);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      // Also what an answer that is no HTTP ends with.
      return phase() <= HttpPhase::kConnecting
                 ? error(Code::kInvalid, "{} is not an http(s) URL: {}", place(request_), why)
                 : error(Code::kCorrupt, "{} does not answer in HTTP: {}", place(request_), why);
    case CURLE_WEIRD_SERVER_REPLY:
      return error(Code::kCorrupt, "{} does not answer in HTTP: {}", place(request_), why);
    case CURLE_OUT_OF_MEMORY:
      return error(Code::kNoSpace, "no memory for the request to {}", place(request_));
    default:
      break;
  }
  if (headers_done_) {
    return error(Code::kShort, "the body of {} broke off after {} bytes: {}", place(request_),
                 response_.received.value, why);
  }
  return error(Code::kUnreachable, "the connection to {} broke: {}", place(request_), why);
}

Error CurlExchange::tls_failure(CURLcode code) const {
  if (code == CURLE_SSL_CACERT_BADFILE) {
    return error(Code::kInvalid, "the CA file {} cannot be used: {}; name a PEM file in ca_file",
                 request_.ca_file, text_.data());
  }
  const std::string_view why = text_.data();
  std::string_view cure = "name the CA that signed it in ca_file, AWS_CA_BUNDLE or SSL_CERT_FILE";
  if (why.find("expired") != why.npos) cure = "renew the server's certificate or check the clock";
  if (why.find("subject name") != why.npos) cure = "use the host name that the certificate is for";
  return error(Code::kDenied, "{} is not trusted: {}; {}", place(request_), why, cure);
}

bool CurlExchange::fail(Error e) {
  failed_ = std::move(e);
  return false;
}

bool CurlExchange::take_header(std::string_view line) {
  progress_ = std::chrono::steady_clock::now();
  if (headers_done_) return true;  // a trailer
  header_bytes_ += line.size();
  if (header_bytes_ > kMaxHeaderBytes) {
    return fail(error(Code::kCorrupt, "the headers of {} exceed {} bytes", place(request_),
                      kMaxHeaderBytes));
  }
  if (line.starts_with("HTTP/")) {
    long status = 0;
    curl_easy_getinfo(handle_.easy.get(), CURLINFO_RESPONSE_CODE, &status);
    response_.status = static_cast<int>(status);
    response_.headers.clear();
    return true;
  }
  line = trim(line);
  if (line.empty()) {
    if (response_.status < 200) return true;  // an interim answer
    headers_done_ = true;
    if (!request_.on_headers) return true;
    auto judged = request_.on_headers(response_);
    return judged ? true : fail(std::move(judged).error());
  }
  const auto colon = line.find(':');
  if (colon == line.npos) return true;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  response_.headers.emplace_back(std::move(name), trim(line.substr(colon + 1)));
  return true;
}

bool CurlExchange::take_body(ByteSpan piece) {
  progress_ = std::chrono::steady_clock::now();
  response_.received += Bytes(piece.size());
  if (response_.received > request_.max_body) {
    return fail(error(Code::kCorrupt, "the body of {} is longer than {} bytes", place(request_),
                      request_.max_body.value));
  }
  const bool success = response_.status >= 200 && response_.status < 300;
  if (!success || !sink_) {
    const std::size_t limit = success ? piece.size() : kMaxErrorBody - response_.body.size();
    response_.body += as_text(piece.first(std::min(piece.size(), limit)));
    return true;
  }
  auto taken = sink_(piece);
  progress_ = std::chrono::steady_clock::now();
  return taken ? true : fail(std::move(taken).error());
}

std::size_t CurlExchange::on_header(char* data, std::size_t size, std::size_t count, void* self) {
  return static_cast<CurlExchange*>(self)->take_header({data, size * count}) ? size * count : 0;
}

std::size_t CurlExchange::on_body(char* data, std::size_t size, std::size_t count, void* self) {
  const ByteSpan piece = as_bytes({data, size * count});
  return static_cast<CurlExchange*>(self)->take_body(piece) ? size * count : 0;
}

}  // namespace quiver::io
