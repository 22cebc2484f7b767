#include <algorithm>
#include <vector>

#include "base/guarded.h"
#include "io/curl_exchange.h"

namespace quiver::io {
namespace {

constexpr long kConnectionsPerHandle = 2;  // a server and the one that it redirects to

// libcurl's own global state: initialised once, before any thread can use it.
void initialise_libcurl() {
  static const CURLcode done = curl_global_init(CURL_GLOBAL_DEFAULT);
  (void)done;
}

std::string part(CURLU* url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, which, &text, flags) != CURLUE_OK) return {};
  std::string copy = text;
  curl_free(text);
  return copy;
}

struct Step {
  std::string url, host;
  bool same_server;  // scheme, host and port
};

// Where a Location leads from `base`. kDenied when it would leave TLS.
Result<Step> follow(const std::string& base, const std::string& location) {
  CurlUrl url(curl_url());
  if (!url || curl_url_set(url.get(), CURLUPART_URL, base.c_str(), CURLU_PATH_AS_IS)) {
    return error(Code::kInvalid, "a redirect from a URL that cannot be read");
  }
  auto server = [&] {
    return std::vector{part(url.get(), CURLUPART_SCHEME), part(url.get(), CURLUPART_HOST),
                       part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  };
  const auto before = server();
  if (curl_url_set(url.get(), CURLUPART_URL, location.c_str(), CURLU_PATH_AS_IS)) {
    return error(Code::kInvalid, "a redirect to {}, which is not an http(s) URL", location);
  }
  const auto after = server();
  if (before[0] == "https" && after[0] != "https") {
    return error(Code::kDenied, "a redirect from https to {}://{}; name the server directly",
                 after[0], after[1]);
  }
  return Step{part(url.get(), CURLUPART_URL), after[1], before == after};
}

// A signature is made anew for each host and gives no secret away; what is in the headers does.
void drop_credentials(HttpRequest& request, const std::string& host) {
  if (!request.signs_for || !request.signs_for(host)) request.sign.reset();
  std::erase_if(request.headers, [](const auto& header) {
    std::string name = header.first;
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    return name == "authorization" || name == "cookie" || name == "x-amz-security-token";
  });
}

bool leads_on(const HttpRequest& request, const HttpResponse& answer) {
  const int s = answer.status;
  const bool redirect = s == 301 || s == 302 || s == 303 || s == 307 || s == 308;
  return redirect && request.max_redirects > 0 && (!request.follows || request.follows(answer));
}

// Owns a pool of handles, each with its connections; a call takes one for its duration, the most
// recently used first, since its connection is the warmest. Any thread may call; the caller
// outlives its calls. A failed exchange closes its connection and returns the handle.
class CurlTransport final : public HttpTransport {
 public:
  explicit CurlTransport(int max_connections) : unmade_(std::max(1, max_connections)) {
    initialise_libcurl();
    pool_.with([&](Pool& p) { p.unmade = unmade_; });
  }

  Result<HttpResponse> perform(const HttpRequest& request, const BodySink& sink,
                               std::stop_token stop) override {
    auto handle = TRY(take(request, stop));
    auto result = perform_on(*handle, request, sink, stop);
    pool_.change([&](Pool& p) { p.idle.push_back(std::move(handle)); });
    return result;
  }

 private:
  struct Pool {
    std::vector<std::unique_ptr<CurlHandle>> idle;
    int unmade = 0;
  };

  Result<std::unique_ptr<CurlHandle>> take(const HttpRequest& request, std::stop_token stop) {
    std::unique_ptr<CurlHandle> handle;
    const bool got = pool_.wait_for(
        stop, request.total_timeout, [](Pool& p) { return !p.idle.empty() || p.unmade > 0; },
        [&](Pool& p) {
          if (p.idle.empty()) {
            --p.unmade;
            handle = std::make_unique<CurlHandle>();
          } else {
            handle = std::move(p.idle.back());
            p.idle.pop_back();
          }
        });
    if (!got) {
      if (request.reached) *request.reached = HttpPhase::kConnecting;
      return stop.stop_requested()
                 ? error(Code::kCancelled, "a request was cancelled before it was sent")
                 : error(Code::kTimeout, "all {} connections were busy for {} ms", unmade_,
                         request.total_timeout.count());
    }
    if (!handle->easy) {
      handle->multi.reset(curl_multi_init());
      handle->easy.reset(curl_easy_init());
      curl_multi_setopt(handle->multi.get(), CURLMOPT_MAXCONNECTS, kConnectionsPerHandle);
    }
    return handle;
  }

  static Result<HttpResponse> perform_on(CurlHandle& handle, const HttpRequest& request,
                                         const BodySink& sink, std::stop_token stop) {
    HttpRequest step = request;
    step.on_headers = [&](const HttpResponse& answer) -> Status {
      const bool final = !leads_on(request, answer);
      return final && request.on_headers ? request.on_headers(answer) : Status{};
    };
    for (;;) {
      auto answer = TRY(CurlExchange(handle, step, sink).run(stop));
      const std::string location(answer.header("location"));
      if (!leads_on(request, answer) || location.empty()) return answer;
      if (step.max_redirects-- == 0) {
        return error(Code::kInvalid, "{} redirects more than {} times", request.url,
                     request.max_redirects);
      }
      auto next = TRY(follow(step.url, location));
      if (!next.same_server) drop_credentials(step, next.host);
      step.url = std::move(next.url);
    }
  }

  const int unmade_;
  Guarded<Pool> pool_;
};

}  // namespace

std::unique_ptr<HttpTransport> make_curl_transport(int max_connections) {
  return std::make_unique<CurlTransport>(max_connections);
}

}  // namespace quiver::io
