// One request and its answer over one libcurl handle. Private to the transport.
#pragma once

#include <curl/curl.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "io/http.h"

namespace quiver::io {

template <auto free>
struct CurlFree {
  template <class T>
  void operator()(T* p) const {
    free(p);
  }
};
using CurlEasy = std::unique_ptr<CURL, CurlFree<curl_easy_cleanup>>;
using CurlMulti = std::unique_ptr<CURLM, CurlFree<curl_multi_cleanup>>;
using CurlList = std::unique_ptr<curl_slist, CurlFree<curl_slist_free_all>>;
using CurlUrl = std::unique_ptr<CURLU, CurlFree<curl_url_cleanup>>;

// A handle with the connections that it keeps. One thread at a time. `multi` holds the connections
// and can be woken from any thread, so that a stop ends an exchange at once.
struct CurlHandle {
  CurlMulti multi;
  CurlEasy easy;
};

// Runs one exchange, without redirects. Owns the callbacks' state; lives as long as run(). When it
// fails the connection is closed, never reused.
class CurlExchange {
 public:
  CurlExchange(CurlHandle& handle, const HttpRequest& request, const BodySink& sink)
      : handle_(handle), request_(request), sink_(sink) {}
  CurlExchange(const CurlExchange&) = delete;

  Result<HttpResponse> run(std::stop_token stop);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  Status prepare();
  Status prepare_method();
  Status prepare_headers();
  void prepare_tls();
  void prepare_proxy();
  void prepare_signature();
  Result<CURLcode> drive(std::stop_token stop);
  std::optional<Error> overdue(SteadyTime start) const;
  Error failure(CURLcode code);
  Error tls_failure(CURLcode code) const;
  HttpPhase phase() const;
  bool take_header(std::string_view line);
  bool take_body(ByteSpan piece);
  bool fail(Error e);

  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);

  CurlHandle& handle_;
  const HttpRequest& request_;
  const BodySink& sink_;
  HttpResponse response_;
  CurlList headers_;
  std::optional<Error> failed_;  // of a callback
  bool headers_done_ = false;
  std::size_t header_bytes_ = 0;
  SteadyTime progress_{};
  std::array<char, CURL_ERROR_SIZE> text_{};
};

}  // namespace quiver::io
