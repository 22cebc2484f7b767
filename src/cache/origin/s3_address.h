// Where a bucket's objects are reached. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace quiver::cache {

struct S3Place {
  std::string bucket;
  std::string prefix;  // of the keys: empty, or ending in '/'
};
// "s3://bucket/some/prefix". The prefix is bytes, as in a key: nothing in it is decoded.
Result<S3Place> parse_s3_url(std::string_view url);

// Whether `host` belongs to the store at `endpoint`, so that requests to it may be signed: to AWS,
// or to the endpoint's host (at any port) and those below it.
bool of_same_store(std::string_view endpoint, std::string_view host);

// How a URL is made for a key. Immutable.
class S3Address {
 public:
  // `endpoint` empty: AWS, in `region`. `addressing`: path, virtual, or auto, which is virtual
  // where the bucket's name can be a host's: at AWS or a named host without port, when it has no
  // dots or capitals.
  static Result<S3Address> make(std::string_view endpoint, std::string_view region,
                                std::string_view bucket, std::string_view addressing);

  std::string object(std::string_view whole_key) const;  // of one object
  std::string listing(std::string_view encoded_query) const;

 private:
  std::string base_;  // ends in '/', where the key begins
};

}  // namespace quiver::cache
