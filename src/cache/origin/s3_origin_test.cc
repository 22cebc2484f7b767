#include "cache/origin/s3_origin.h"

#include <latch>
#include <set>

#include "cache/origin/s3_address.h"
#include "cache/origin/s3_error.h"
#include "cache/origin/testing/fixture.h"

namespace quiver::cache::testing {
namespace {

struct S3OriginTest : FaultFixture {
  S3OriginTest() { objects.put("set/k", "0123456789"); }

  Origin& open_s3(Handler handler, OriginSettings settings = {}) {
    if (settings.url.empty()) settings.url = "s3://b/set";
    settings.access_key = "AKID";
    settings.secret_key = "verysecret";
    settings.session_token = "TOKEN";
    return open(std::move(handler), settings);
  }
  Handler always(ScriptedReply reply) {
    return [reply](const ScriptedRequest&) { return reply; };
  }
  Result<std::vector<std::string>> keys() {
    std::vector<std::string> found;
    auto done = origin->list(
        [&](ListedObject o) -> Status {
          found.push_back(o.key);
          return {};
        },
        {});
    if (!done) return std::move(done).error();
    return found;
  }
};

TEST_F(S3OriginTest, EachRefusalNamesTheObjectTheReasonAndTheCure) {
  struct Case {
    const char* s3;
    int status;
    Code code;
    const char* cure;
  };
  const Case cases[] = {{"ExpiredToken", 400, Code::kExpired, "refresh"},
                        {"InvalidToken", 400, Code::kExpired, "anew"},
                        {"AccessDenied", 403, Code::kDenied, "s3:GetObject"},
                        {"InvalidAccessKeyId", 403, Code::kDenied, "check access key"},
                        {"SignatureDoesNotMatch", 403, Code::kDenied, "check secret key"},
                        {"RequestTimeTooSkewed", 403, Code::kDenied, "set the clock"},
                        {"NoSuchBucket", 404, Code::kNotFound, "check its name"},
                        {"NoSuchKey", 404, Code::kNotFound, "digest"},
                        {"PreconditionFailed", 412, Code::kChanged, "digest"},
                        {"SlowDown", 503, Code::kThrottled, "lower the rate limit"},
                        {"InternalError", 500, Code::kUnreachable, "later"},
                        // The same after a 200: a whole read, a ranged one.
                        {"PreconditionFailed", 200, Code::kChanged, "digest"},
                        {"InternalError", 200, Code::kUnreachable, "later"},
                        {"ExpiredToken", 200, Code::kExpired, "refresh"}};
  std::set<std::string> messages;
  for (const Case& c : cases) {
    for (bool chunked : {false, true}) {
      open_s3(
          always({.status = c.status, .body = FakeObjects::error_xml(c.s3), .chunked = chunked}));
      const ObjectVersion v{Bytes(5000), "\"e\"", 0};
      const std::size_t length = c.status == 200 ? 5000 : 5;
      const Error e = failure("k", 0, length, v);
      EXPECT_EQ(e.code, c.code) << c.s3 << ": " << e.message;
      EXPECT_NE(e.message.find("s3://b/set/k"), std::string::npos) << e.message;
      EXPECT_NE(e.message.find(c.cure), std::string::npos) << e.message;
      EXPECT_EQ(e.message.find("verysecret"), std::string::npos);
      EXPECT_EQ(e.message.find("TOKEN"), std::string::npos);
      EXPECT_EQ(keys().error().code, c.code) << c.s3;
      messages.insert(e.message);
    }
  }
  EXPECT_EQ(messages.size(), std::size(cases));  // no two read alike
}

TEST_F(S3OriginTest, ARefusedHeadAsksForTheReason) {
  for (const auto& [s3, code] :
       std::vector<std::pair<std::string, Code>>{{"NoSuchBucket", Code::kNotFound},
                                                 {"ExpiredToken", Code::kExpired},
                                                 {"InvalidAccessKeyId", Code::kDenied}}) {
    open_s3(always({.status = code == Code::kExpired  ? 400
                              : code == Code::kDenied ? 403
                                                      : 404,
                    .body = FakeObjects::error_xml(s3)}));
    auto head = origin->head("k", {});
    ASSERT_FALSE(head);
    EXPECT_EQ(head.error().code, code);
    EXPECT_NE(head.error().message.find(s3), std::string::npos) << head.error().message;
  }
}

TEST_F(S3OriginTest, EachAttemptIsSignedAnew) {
  int gets = 0;
  open_s3([&](const ScriptedRequest& r) {
    return ++gets == 1 ? ScriptedReply{.status = 500} : objects.s3(r);
  });
  on_wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1100)); };
  ASSERT_TRUE(read("k", 0, 10));
  std::set<std::string> dates, signatures;
  for (const auto& r : server->requests()) {
    const std::string authorization = r.header("authorization");
    EXPECT_TRUE(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"));
    dates.insert(r.header("x-amz-date"));
    signatures.insert(authorization);
    EXPECT_EQ(r.header("x-amz-security-token"), "TOKEN");
  }
  EXPECT_EQ(dates.size(), 2u);
  EXPECT_EQ(signatures.size(), 2u);
}

TEST_F(S3OriginTest, AnonymousRequestsAreNotSigned) {
  OriginSettings settings;
  settings.url = "s3://b/set";
  open([&](const ScriptedRequest& r) { return objects.s3(r); }, settings);
  ASSERT_TRUE(read("k", 0, 10));
  EXPECT_EQ(server->requests().back().header("authorization"), "");
}

TEST_F(S3OriginTest, TheRegionHintIsFollowedOnce) {
  const auto redirect = [](const std::string& to) {
    return ScriptedReply{.status = 400,
                         .headers = {{"x-amz-bucket-region", to}},
                         .body = FakeObjects::error_xml("AuthorizationHeaderMalformed")};
  };
  open_s3([&](const ScriptedRequest& r) {
    const bool right = r.header("authorization").find("/eu-west-1/") != std::string::npos;
    return right ? objects.s3(r) : redirect("eu-west-1");
  });
  EXPECT_EQ(*read("k", 0, 10), "0123456789");
  EXPECT_EQ(retries(RetryClass::kRegion), 1u);
  EXPECT_TRUE(read("k", 0, 10));
  EXPECT_EQ(retries(RetryClass::kRegion), 1u);

  int turn = 0;
  open_s3([&](const ScriptedRequest&) { return redirect(++turn % 2 ? "eu-west-1" : "eu-west-2"); });
  const Error lost = failure("k", 0, 10);
  EXPECT_EQ(lost.code, Code::kInvalid);
  EXPECT_NE(lost.message.find("bucket is in eu-west-2"), std::string::npos) << lost.message;

  open_s3(always(
      {.status = 301,
       .body = FakeObjects::error_xml("PermanentRedirect", "<Region>eu-central-1</Region>")}));
  EXPECT_NE(failure("k", 0, 10).message.find("bucket is in eu-central-1"), std::string::npos);
}

TEST_F(S3OriginTest, AllOfManyFirstRequestsMoveToTheRightRegion) {
  constexpr int kAtOnce = 8;
  std::latch all(kAtOnce);  // all are asked of the wrong region before one is answered
  open_s3([&](const ScriptedRequest& r) {
    if (r.header("authorization").find("/eu-west-1/") != std::string::npos) return objects.s3(r);
    all.arrive_and_wait();
    return ScriptedReply{.status = 400,
                         .headers = {{"x-amz-bucket-region", "eu-west-1"}},
                         .body = FakeObjects::error_xml("AuthorizationHeaderMalformed")};
  });
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < kAtOnce; ++i) {
      readers.emplace_back([&] {
        const auto got = read("k", 0, 10);
        EXPECT_TRUE(got) << got.error().message;
      });
    }
  }
  EXPECT_EQ(retries(RetryClass::kRegion), static_cast<std::uint64_t>(kAtOnce));
}

TEST_F(S3OriginTest, ARefusalInTheRightRegionIsNoMatterOfRegions) {
  open_s3([&](const ScriptedRequest& r) {
    const bool right = r.header("authorization").find("/eu-west-1/") != std::string::npos;
    return ScriptedReply{.status = right ? 403 : 400,
                         .headers = {{"x-amz-bucket-region", "eu-west-1"}},
                         .body = FakeObjects::error_xml(right ? "AccessDenied" : "Malformed")};
  });
  EXPECT_EQ(failure("k", 0, 10).code, Code::kDenied);
}

TEST_F(S3OriginTest, RedirectsAreFollowedAndSignedAnewWithinTheStore) {
  const auto to = [](const io::testing::ScriptedHttp& next, const std::string& host) {
    return [&next, host](const ScriptedRequest& r) {
      return ScriptedReply{.status = 307,
                           .headers = {{"Location", "http://" + host + ":" +
                                                        std::to_string(next.port()) + r.target}},
                           .body = FakeObjects::error_xml("TemporaryRedirect")};
    };
  };
  io::testing::ScriptedHttp last([&](const ScriptedRequest& r) { return objects.s3(r); });
  open_s3(to(last, "127.0.0.1"));  // the same host, another port
  EXPECT_EQ(*read("k", 2, 5), "23456");
  const ScriptedRequest own = last.requests().back();
  EXPECT_EQ(own.header("range"), "bytes=2-6");
  EXPECT_TRUE(own.header("authorization").starts_with("AWS4-HMAC-SHA256 Credential=AKID/"));
  EXPECT_NE(own.header("authorization"), server->requests().back().header("authorization"));

  open_s3(to(last, "localhost"));  // another host: it gets no credentials
  EXPECT_EQ(*read("k", 2, 5), "23456");
  const ScriptedRequest foreign = last.requests().back();
  EXPECT_EQ(foreign.header("range"), "bytes=2-6");
  EXPECT_EQ(foreign.header("authorization"), "");
  EXPECT_EQ(foreign.header("x-amz-security-token"), "");

  open_s3([&](const ScriptedRequest& r) {
    return ScriptedReply{.status = 307, .headers = {{"Location", server->url() + r.target}}};
  });
  const Error endless = failure("k", 0, 10);
  EXPECT_NE(endless.message.find("more than 5 times"), std::string::npos) << endless.message;
  EXPECT_EQ(server->requests().size(), 6u);
}

TEST(S3Address, KnowsItsOwnHosts) {
  EXPECT_TRUE(of_same_store("", "b.s3.eu-west-1.amazonaws.com"));
  EXPECT_TRUE(of_same_store("https://s3.us-east-1.amazonaws.com", "s3.eu-west-1.amazonaws.com"));
  EXPECT_TRUE(of_same_store("http://store.example:9000/x", "b.store.example"));
  EXPECT_TRUE(of_same_store("http://[::1]:9000", "[::1]"));
  EXPECT_FALSE(of_same_store("", "amazonaws.com.evil.example"));
  EXPECT_FALSE(of_same_store("", "evilamazonaws.com"));
  EXPECT_FALSE(of_same_store("http://store.example", "s3.amazonaws.com"));
  EXPECT_FALSE(of_same_store("http://store.example", "evilstore.example"));
  EXPECT_FALSE(of_same_store("http://0.0.1", "127.0.0.1"));
}

TEST_F(S3OriginTest, ListingsAreFollowedToTheirEnd) {
  for (const char* key : {"set/", "set/a b", "set/p/", "set/q+%", "set/\xff\x01", "other/x"}) {
    objects.put(key, "");
  }
  open_s3([&](const ScriptedRequest& r) { return objects.s3(r, 2); });
  auto found = keys();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, (std::vector<std::string>{"a b", "k", "p/", "q+%", "\xff\x01"}));
  EXPECT_EQ(origin->stats().lists, 3u);
  // Sorted and encoded as it is signed.
  EXPECT_EQ(server->requests()[0].target, "/b/?encoding-type=url&list-type=2&prefix=set%2F");
}

TEST_F(S3OriginTest, HostileListingsEnd) {
  const std::string head = "<ListBucketResult><IsTruncated>true</IsTruncated>";
  const std::string next = "<NextContinuationToken>t</NextContinuationToken>";
  const std::vector<ScriptedReply> replies = {
      {.body = head + next + "</ListBucketResult>"},  // the same token again
      {.body = head + "</ListBucketResult>"},         // no token
      {.body = "<ListBucketResult><Contents><Key>other</Key><Size>1</Size></Contents>"
               "</ListBucketResult>"},  // a key of another folder
      {.body = "<ListBucketResult>"},
      {.body = "{}"},
      {.body = std::string(1 << 16, '<'), .endless = std::uint64_t{1} << 30}};
  for (std::size_t i = 0; i < replies.size(); ++i) {
    open_s3(always(replies[i]));
    auto found = keys();
    ASSERT_FALSE(found) << i;
    EXPECT_EQ(found.error().code, Code::kCorrupt) << i << ": " << found.error().message;
    EXPECT_NE(found.error().message.find("s3://b/set"), std::string::npos);
  }
  int page = 0;  // a new token each time, and never an object
  open_s3([&](const ScriptedRequest&) {
    return ScriptedReply{.body = head + "<NextContinuationToken>" + std::to_string(++page) +
                                 "</NextContinuationToken></ListBucketResult>"};
  });
  EXPECT_EQ(keys().error().code, Code::kCorrupt);
}

TEST_F(S3OriginTest, ChecksumsOfWholeObjectsAreTaken) {
  const std::string base64 = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";  // of no bytes
  struct Case {
    std::string value, type;
    bool taken;
  };
  for (const Case& c : {Case{base64, "FULL_OBJECT", true}, Case{base64, "", true},
                        Case{base64 + "-3", "COMPOSITE", false}, Case{base64 + "-3", "", false},
                        Case{base64, "COMPOSITE", false}, Case{"nonsense", "", false}}) {
    open_s3([&](const ScriptedRequest& r) {
      ScriptedReply reply = objects.s3(r);
      if (r.header("x-amz-checksum-mode") == "ENABLED") {
        reply.headers.emplace_back("x-amz-checksum-sha256", c.value);
        if (!c.type.empty()) reply.headers.emplace_back("x-amz-checksum-type", c.type);
      }
      return reply;
    });
    auto head = origin->head("k", {});
    ASSERT_TRUE(head);
    EXPECT_EQ(head->sha256.has_value(), c.taken) << c.value << c.type;
    if (c.taken) {
      EXPECT_EQ(*head->sha256, sha256({}));
    }
  }
}

TEST_F(S3OriginTest, AnObjectThatShrankToNothingIsChanged) {
  open_s3([&](const ScriptedRequest& r) { return objects.s3(r); });
  ObjectVersion v = origin->head("k", {})->version;
  objects.put("set/k", "");
  EXPECT_EQ(failure("k", 0, 1, v).code, Code::kChanged);
  v.etag.clear();  // a store without ETags: 416 says it
  EXPECT_EQ(failure("k", 0, 1, v).code, Code::kChanged);
}

TEST(S3Address, ChoosesTheStyle) {
  auto object = [](const char* endpoint, const char* region, const char* bucket,
                   const char* style) {
    auto address = S3Address::make(endpoint, region, bucket, style);
    return address ? address->object("k/a+b") : address.error().message;
  };
  EXPECT_EQ(object("", "eu-west-1", "bucket", "auto"),
            "https://bucket.s3.eu-west-1.amazonaws.com/k/a%2Bb");
  EXPECT_EQ(object("", "eu-west-1", "a.b.c", "auto"),
            "https://s3.eu-west-1.amazonaws.com/a.b.c/k/a%2Bb");
  EXPECT_EQ(object("", "cn-north-1", "bucket", "path"),
            "https://s3.cn-north-1.amazonaws.com.cn/bucket/k/a%2Bb");
  EXPECT_EQ(object("http://127.0.0.1:9000/", "", "bucket", "auto"),
            "http://127.0.0.1:9000/bucket/k/a%2Bb");
  EXPECT_EQ(object("http://[::1]:9000", "", "bucket", "auto"), "http://[::1]:9000/bucket/k/a%2Bb");
  EXPECT_EQ(object("http://localhost", "", "bucket", "auto"), "http://localhost/bucket/k/a%2Bb");
  EXPECT_EQ(object("http://minio:9000", "", "bucket", "auto"), "http://minio:9000/bucket/k/a%2Bb");
  EXPECT_EQ(object("https://store.example", "", "bucket", "auto"),
            "https://bucket.store.example/k/a%2Bb");
  EXPECT_EQ(object("http://localhost:9000", "", "bucket", "virtual"),
            "http://bucket.localhost:9000/k/a%2Bb");
  EXPECT_FALSE(S3Address::make("localhost:9000", "", "b", "auto"));
  EXPECT_FALSE(S3Address::make("", "r", "b", "sideways"));
}

TEST(S3Url, SplitsBucketAndPrefix) {
  EXPECT_EQ(parse_s3_url("s3://b")->prefix, "");
  EXPECT_EQ(parse_s3_url("s3://b/")->prefix, "");
  EXPECT_EQ(parse_s3_url("s3://b/p")->prefix, "p/");
  EXPECT_EQ(parse_s3_url("s3://b/p/q%20/")->prefix, "p/q%20/");
  EXPECT_EQ(parse_s3_url("s3://b/p//")->prefix, "p//");
  for (const char* bad : {"s3://", "s3:///p", "s3://b?x/p", "s3://u:p@b/p"}) {
    EXPECT_FALSE(parse_s3_url(bad)) << bad;
  }
}

}  // namespace
}  // namespace quiver::cache::testing
