// What the HTTP and S3 origins share: attempts with retry, ranged reads that resume, rate limit,
// statistics. They differ in how a request is addressed and signed and how a refusal reads.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <string>

#include "cache/origin/origin.h"
#include "cache/origin/pace.h"
#include "cache/origin/retry.h"

namespace quiver::cache {

// One request as it can be made again.
struct HttpCall {
  std::string what;  // for messages: "s3://bucket/key"
  RequestKind kind = RequestKind::kGet;
  std::function<io::HttpRequest()> make;  // called for each attempt, so that each is signed anew
  // Reads an answer other than 2xx; also what a 200 holds that is not the object.
  std::function<Failure(const io::HttpResponse&)> refused;
  // Whether the body of a 2xx is a refusal in disguise (S3 sends errors after a 200).
  std::function<bool(std::string_view body)> disguised = [](std::string_view) { return false; };
};

// The refusal of a plain HTTP server, by status alone. S3 falls back to it.
Failure plain_refusal(const std::string& what, const io::HttpResponse& answer, WallTime now);

// Retry-After in seconds or as a date; 0 when absent or past.
std::chrono::milliseconds retry_after(const io::HttpResponse& answer, WallTime now);

// Borrows transport and clock; owns the retry state and the counts of one origin, and a share in
// the pace of its server, `root`. Any thread may call anything. A failed call leaves no state
// behind.
class HttpClient {
 public:
  HttpClient(const OriginSettings& settings, OriginContext context, const std::string& root);

  // The settings that every request of this origin shares.
  io::HttpRequest blank() const;

  // A small answer, held in memory: at most `limit` bytes.
  Result<io::HttpResponse> fetch(const HttpCall& call, Bytes limit, std::stop_token stop);
  // As Origin::read. The object's bytes in pieces, each attempt going on where the last broke off.
  Status read(const HttpCall& call, const ReadRequest& request, MutableByteSpan out,
              std::stop_token stop);

  OriginStats stats() const;
  WallTime wall() const { return context_.clock.wall(); }

 private:
  friend class RangedRead;
  // One attempt, when the server's pace allows for it.
  std::optional<Failure> paced(RequestKind kind,
                               const std::function<std::optional<Failure>()>& attempt,
                               std::stop_token stop);
  // Waits until the rate limit lets `bytes` through.
  Status admit(Bytes bytes, std::stop_token stop);
  static Failure transport_failure(Error e, io::HttpPhase reached);

  const OriginSettings settings_;
  OriginContext context_;
  Retrier retrier_;
  const Waiter waiter_;
  const std::shared_ptr<OriginPace> pace_;
  std::array<std::atomic<std::uint64_t>, 3> sent_{};  // by RequestKind
  std::atomic<std::uint64_t> body_bytes_{0};
};

}  // namespace quiver::cache
