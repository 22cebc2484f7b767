// Origin: where a dataset's bytes come from. Read-only, verified at each step, never trusted.
//
// To add one: implement Origin in a folder of its own, add its URL scheme to open_origin, and run
// the contract suite (origin_contract.h) over it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/hash.h"
#include "base/result.h"
#include "base/units.h"
#include "cache/manifest/manifest.h"
#include "cache/origin/credentials.h"
#include "io/file.h"
#include "io/http.h"

namespace quiver::cache {

struct ListedObject {
  std::string key;  // relative to the origin's URL; opaque bytes, never normalised
  ObjectVersion version;
  std::optional<Sha256> sha256;  // where the store holds one of the whole object
};

struct ReadRequest {
  std::string key;
  std::uint64_t offset = 0;
  // Sent as If-Match; another version is kChanged, a range beyond its size kInvalid. One with
  // neither size, ETag nor mtime stands for whatever version is there.
  ObjectVersion expected;
};

// Why a request was tried again.
enum class RetryClass {
  kName,
  kConnect,
  kReset,
  kTimeout,
  kShort,
  kThrottled,
  kServer,
  kRegion,
  kExpired,
  kClock
};
inline constexpr std::size_t kRetryClasses = 10;

// What a request asks for. Stores charge for each, and for lists most.
enum class RequestKind { kList, kHead, kGet };

// What one origin has been asked for, since it was opened. Monotone, but for `permitted`.
struct OriginStats {
  std::uint64_t lists = 0, heads = 0, gets = 0, retries = 0;  // requests sent, retries included
  double permitted = 0;  // requests at once, as the origin bears them; 0: no network, no limit
  Bytes body_bytes;      // payload received, failed attempts included
  std::array<std::uint64_t, kRetryClasses> retries_by_class{};  // indexed by RetryClass

  // The counts of two origins together; `permitted` is of neither.
  OriginStats& operator+=(const OriginStats& other) {
    lists += other.lists;
    heads += other.heads;
    gets += other.gets;
    retries += other.retries;
    body_bytes += other.body_bytes;
    for (std::size_t i = 0; i < kRetryClasses; ++i) {
      retries_by_class[i] += other.retries_by_class[i];
    }
    return *this;
  }
};

class Origin {
 public:
  virtual ~Origin() = default;
  // Calls `each` for every object below the URL, in the store's order, folder markers included.
  // An error from `each` ends the listing with it.
  virtual Status list(const std::function<Status(ListedObject)>& each, std::stop_token stop) = 0;
  // One object's version, and its SHA-256 where the store holds one. kNotFound.
  virtual Result<ListedObject> head(const std::string& key, std::stop_token stop) = 0;
  // Fills `out` with exactly out.size() bytes from `offset`. An empty `out` asks nothing of the
  // origin. kChanged, kNotFound, kDenied, kExpired, kThrottled, kUnreachable, kTimeout, kShort,
  // kCorrupt, each naming the object and the cure; what can pass is retried first, with jitter,
  // Retry-After and a total time budget.
  virtual Status read(const ReadRequest& request, MutableByteSpan out, std::stop_token stop) = 0;
  virtual OriginStats stats() const = 0;
  virtual std::string url() const = 0;  // without credentials
};

// How to reach an origin. Credentials live here, in memory, and nowhere else.
struct OriginSettings {
  std::string url = {};       // s3://bucket/prefix, http(s)://host/path, file:///path or /path
  std::string endpoint = {};  // S3: empty is AWS; else http(s)://host[:port]
  std::string region = {};    // S3: empty is us-east-1
  std::string addressing = "auto";                                   // S3: auto, path, virtual
  std::string access_key = {}, secret_key = {}, session_token = {};  // all empty: anonymous
  std::string ca_file = {};
  bool verify_tls = true;
  Bytes rate_limit = {};  // bytes/s over all readers of this origin's server; 0 is none
  int max_attempts = 6;
  std::chrono::milliseconds retry_budget{60000};  // without progress
  std::chrono::milliseconds connect_timeout{5000}, stall_timeout{30000};
  io::HttpProxies proxies = {};  // of whoever brings these settings, as their credentials are
  std::optional<WallTime> expires = {};  // when the credentials do, where that is known

  Credentials credentials() const { return {access_key, secret_key, session_token}; }
  void set_credentials(Credentials c) {
    access_key = std::move(c.access_key);
    secret_key = std::move(c.secret_key);
    session_token = std::move(c.session_token);
  }
};

// Fills what is empty from AWS_* variables, ~/.aws/config and ~/.aws/credentials (whose
// credential_process is run, for a minute at most), and the proxies from curl's variables (`env` is
// how a variable is read). Explicit values win. What names a file relative to the working directory
// is made absolute. kInvalid for a file that cannot be understood; kExpired for what has expired.
Result<OriginSettings> with_environment(
    OriginSettings settings, io::Files& files,
    const std::function<std::optional<std::string>(const std::string&)>& env, WallTime now);

// What to warn of, once, when an origin is opened: that its certificates are not checked. Empty
// where there is nothing to warn of.
std::string trust_warning(const OriginSettings& settings);

class OriginPaces;  // pace.h

struct OriginContext {
  io::Files& files;
  io::HttpTransport& http;
  Clock& clock;
  std::uint64_t seed = 0;  // of the retry jitter
  // How back-off is waited for; empty: in real time. False when the stop came first.
  std::function<bool(std::chrono::milliseconds, std::stop_token)> wait = {};
  // How fast each server is asked, over all origins of the process; null: this origin on its own.
  OriginPaces* paces = nullptr;
  // In place of those of the settings; null: these, for good.
  std::shared_ptr<RenewableCredentials> credentials = nullptr;
};

Result<std::unique_ptr<Origin>> open_origin(const OriginSettings& settings, OriginContext context);

// The reference: objects in memory. Also what tests break by hand.
std::unique_ptr<Origin> make_memory_origin(
    std::vector<std::pair<std::string, std::string>> objects);

// The HTTP listing: an https:// origin has no listing of its own unless the server makes index
// pages; `list` then reads `<url>/index.txt` (one key a line) or says what is missing.

}  // namespace quiver::cache
