// One range of one object, read by as many attempts as it takes. Private to HttpClient.
#pragma once

#include <algorithm>
#include <string>

#include "cache/origin/http_client.h"

namespace quiver::cache {

// Whether any version will do.
inline bool any_version(const ObjectVersion& v) {
  return v.size.value == 0 && v.etag.empty() && v.mtime_ns == 0;
}

// kInvalid for a range that ends beyond the version that it is read from.
Status check_range(const ReadRequest& request, std::size_t length);

// Owns how far the range is filled. Each answer is judged by its headers before a byte of it
// counts: the status, the range, the length and the version must be those asked for. Invariant: the
// first `filled_` bytes of `out` are of one version of the object. One thread; lives for one read.
class RangedRead {
 public:
  RangedRead(HttpClient& client, const HttpCall& call, const ReadRequest& request,
             MutableByteSpan out, std::stop_token stop)
      : client_(client), call_(call), wanted_(request), out_(out), stop_(stop) {}

  std::optional<Failure> attempt();
  std::uint64_t furthest() const { return furthest_; }

 private:
  Status judge(const io::HttpResponse& answer);
  Status verdict(Status judged);
  Status judge_version(const io::HttpResponse& answer, std::optional<std::uint64_t> size);
  Status judge_partial(const io::HttpResponse& answer);
  Status judge_whole(const io::HttpResponse& answer);
  Status take(ByteSpan piece);
  std::optional<Failure> conclude(const io::HttpResponse& answer);
  Error changed(std::string_view how) const;

  std::uint64_t first() const { return wanted_.offset + filled_; }
  std::uint64_t last() const { return wanted_.offset + out_.size() - 1; }

  HttpClient& client_;
  const HttpCall& call_;
  ReadRequest wanted_;  // its version is pinned by the first answer where none was given
  MutableByteSpan out_;
  std::stop_token stop_;
  std::uint64_t filled_ = 0, furthest_ = 0;
  bool judged_ = false;  // the last attempt ended by our own verdict, which no retry changes
  bool stray_ = false;   // the answer is not the range: its beginning is kept, to say why
  std::string stray_body_;
};

}  // namespace quiver::cache
