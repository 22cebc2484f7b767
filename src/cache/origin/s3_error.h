// What S3's refusals mean to a user: one table.
#pragma once

#include "cache/origin/http_client.h"
#include "cache/origin/s3_xml.h"

namespace quiver::cache {

// The failure that `answer` stands for, on `what` ("s3://bucket/key"). By the code in its XML; by
// status where it has none.
Failure s3_refusal(const std::string& what, const io::HttpResponse& answer, WallTime now);

// How far the store's clock is ahead of `now`, where it refuses for that; 0 for anything else.
std::chrono::seconds s3_clock_ahead(const io::HttpResponse& answer, WallTime now);

// Where the bucket lives, when the answer says so (header x-amz-bucket-region, or <Region>).
std::string s3_region_hint(const io::HttpResponse& answer);

}  // namespace quiver::cache
