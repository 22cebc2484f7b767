#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "io/http.h"
#include "io/testing/scripted_http.h"

namespace quiver::io {
namespace {

using testing::ScriptedHttp;
using testing::ScriptedReply;
using testing::ScriptedRequest;
using Ending = ScriptedReply::Ending;
using std::chrono::milliseconds;

struct CurlTransportTest : ::testing::Test {
  std::unique_ptr<HttpTransport> http = make_curl_transport(4);
  std::string sunk;
  BodySink sink = [this](ByteSpan piece) -> Status {
    sunk += as_text(piece);
    return {};
  };

  static HttpRequest get(const std::string& url) {
    HttpRequest request;
    request.url = url;
    request.stall_timeout = milliseconds(300);
    return request;
  }
  Code code_of(const HttpRequest& request) {
    auto answer = http->perform(request, sink, {});
    EXPECT_FALSE(answer) << "status " << (answer ? answer->status : 0);
    return answer ? Code::kIo : answer.error().code;
  }
};

TEST_F(CurlTransportTest, AnAnswerOfAnyStatusIsAValue) {
  ScriptedHttp server([](const ScriptedRequest& r) {
    return ScriptedReply{.status = r.target == "/ok" ? 200 : 503,
                         .headers = {{"X-Mixed-Case", " padded "}},
                         .body = "hello"};
  });
  auto ok = http->perform(get(server.url() + "/ok"), sink, {});
  ASSERT_TRUE(ok) << ok.error().message;
  EXPECT_EQ(ok->status, 200);
  EXPECT_EQ(ok->header("x-mixed-case"), "padded");
  EXPECT_EQ(sunk, "hello");
  EXPECT_EQ(ok->body, "");
  EXPECT_EQ(ok->received, Bytes(5));
  auto busy = http->perform(get(server.url() + "/busy"), sink, {});
  ASSERT_TRUE(busy);
  EXPECT_EQ(busy->status, 503);
  EXPECT_EQ(busy->body, "hello");  // the sink sees bodies of success only
  EXPECT_EQ(sunk, "hello");
}

TEST_F(CurlTransportTest, TheTargetIsSentAsGiven) {
  ScriptedHttp server([](const ScriptedRequest&) { return ScriptedReply{}; });
  for (std::string target : {"/a/../b", "//lead", "/./x//y/", "/a%2Bb?x=%20&y=1", "/."}) {
    ASSERT_TRUE(http->perform(get(server.url() + target), sink, {}));
    EXPECT_EQ(server.requests().back().target, target);
  }
}

TEST_F(CurlTransportTest, ConnectionsAreKept) {
  ScriptedHttp server([](const ScriptedRequest&) { return ScriptedReply{.body = "x"}; });
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(http->perform(get(server.url()), sink, {}));
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(CurlTransportTest, NeverMoreThanItsConnections) {
  ScriptedHttp server(
      [](const ScriptedRequest&) { return ScriptedReply{.body = "x", .delay = milliseconds(5)}; });
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 12; ++i) {
      callers.emplace_back([&] { EXPECT_TRUE(http->perform(get(server.url()), nullptr, {})); });
    }
  }
  EXPECT_EQ(server.requests().size(), 12u);
  EXPECT_LE(server.connections(), 4);
}

TEST_F(CurlTransportTest, ABodyThatBreaksOffIsShort) {
  const std::string body(100000, 'b');
  for (Ending ending : {Ending::kClose, Ending::kReset}) {
    for (bool chunked : {false, true}) {
      ScriptedHttp server([&](const ScriptedRequest&) {
        return ScriptedReply{.body = body,
                             .content_length = 200000,
                             .chunked = chunked,
                             .cut_after = 100000,
                             .ending = ending,
                             .stall = milliseconds(50)};
      });
      sunk.clear();
      HttpPhase reached{};
      HttpRequest request = get(server.url());
      request.reached = &reached;
      auto answer = http->perform(request, sink, {});
      ASSERT_FALSE(answer);
      EXPECT_EQ(answer.error().code, Code::kShort) << answer.error().message;
      EXPECT_EQ(reached, HttpPhase::kReceiving);
      EXPECT_EQ(sunk, body);
      EXPECT_NE(answer.error().message.find("after 100000 bytes"), std::string::npos);
    }
  }
}

TEST_F(CurlTransportTest, FailuresTellHowFarTheyCame) {
  HttpPhase reached{};
  auto phase_of = [&](HttpRequest request, Code expected) {
    request.reached = &reached;
    EXPECT_EQ(code_of(request), expected);
    return reached;
  };
  int closed_port = 0;
  {
    ScriptedHttp gone([](const ScriptedRequest&) { return ScriptedReply{}; });
    closed_port = gone.port();
  }
  EXPECT_EQ(phase_of(get("http://no-such-host.invalid/"), Code::kUnreachable),
            HttpPhase::kResolving);
  EXPECT_EQ(phase_of(get("http://127.0.0.1:" + std::to_string(closed_port)), Code::kUnreachable),
            HttpPhase::kConnecting);
  ScriptedHttp resets(
      [](const ScriptedRequest&) { return ScriptedReply{.raw = "H", .ending = Ending::kReset}; });
  EXPECT_EQ(phase_of(get(resets.url()), Code::kUnreachable), HttpPhase::kWaiting);
  ScriptedHttp silent(
      [](const ScriptedRequest&) { return ScriptedReply{.delay = milliseconds(5000)}; });
  EXPECT_EQ(phase_of(get(silent.url()), Code::kTimeout), HttpPhase::kWaiting);
  EXPECT_EQ(phase_of(get("https" + silent.url().substr(4)), Code::kTimeout),
            HttpPhase::kConnecting);
}

TEST_F(CurlTransportTest, AStalledBodyTimesOutButASlowReaderDoesNot) {
  ScriptedHttp server([](const ScriptedRequest&) {
    return ScriptedReply{.body = "12345", .content_length = 10, .stall = milliseconds(5000)};
  });
  EXPECT_EQ(code_of(get(server.url())), Code::kTimeout);
  EXPECT_EQ(sunk, "12345");
  ScriptedHttp quick([](const ScriptedRequest&) { return ScriptedReply{.body = "1"}; });
  auto slow = http->perform(get(quick.url()),
                            [](ByteSpan) -> Status {
                              std::this_thread::sleep_for(milliseconds(500));
                              return {};
                            },
                            {});
  EXPECT_TRUE(slow);
}

TEST_F(CurlTransportTest, LongBodiesAndGarbageAreCorrupt) {
  ScriptedHttp big([](const ScriptedRequest&) {
    return ScriptedReply{.body = std::string(1000, 'x'), .endless = 1 << 30};
  });
  HttpRequest request = get(big.url());
  request.max_body = Bytes(5000);
  EXPECT_EQ(code_of(request), Code::kCorrupt);
  EXPECT_LE(sunk.size(), 5000u);
  ScriptedHttp garbage([](const ScriptedRequest&) {
    return ScriptedReply{.raw = "SSH-2.0-OpenSSH\r\n\r\n", .ending = Ending::kClose};
  });
  EXPECT_EQ(code_of(get(garbage.url())), Code::kCorrupt);
  ScriptedHttp headers([](const ScriptedRequest&) {
    ScriptedReply reply;
    for (int i = 0; i < 40; ++i) reply.headers.emplace_back("X-Long", std::string(10000, 'h'));
    return reply;
  });
  EXPECT_EQ(code_of(get(headers.url())), Code::kCorrupt);
}

// Bytes behind the announced end belong to nobody: they must not become the next answer.
TEST_F(CurlTransportTest, BytesBehindTheEndOfABodyAreNotTheNextAnswer) {
  ScriptedHttp server([](const ScriptedRequest& r) {
    if (r.target == "/next") return ScriptedReply{.body = "next"};
    return ScriptedReply{.raw =
                             "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nthisHTTP/1.1 200 OK\r\n"
                             "Content-Length: 4\r\n\r\nevil"};
  });
  ASSERT_TRUE(http->perform(get(server.url() + "/this"), sink, {}));
  ASSERT_TRUE(http->perform(get(server.url() + "/next"), sink, {}));
  EXPECT_EQ(sunk, "thisnext");
}

TEST_F(CurlTransportTest, HeadersAreJudgedBeforeTheBodyAndTheSinkEndsTheExchange) {
  ScriptedHttp server([](const ScriptedRequest&) {
    return ScriptedReply{.body = std::string(1000, 'x'), .endless = 1 << 28};
  });
  HttpRequest request = get(server.url());
  request.on_headers = [](const HttpResponse& r) -> Status {
    return error(Code::kChanged, "status {}", r.status);
  };
  EXPECT_EQ(code_of(request), Code::kChanged);
  EXPECT_EQ(sunk, "");
  auto refused = http->perform(
      get(server.url()), [](ByteSpan) -> Status { return error(Code::kNoSpace, "full"); }, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoSpace);
}

TEST_F(CurlTransportTest, AStopEndsAnExchangeAtOnce) {
  ScriptedHttp server(
      [](const ScriptedRequest&) { return ScriptedReply{.delay = milliseconds(10000)}; });
  HttpRequest request = get(server.url());
  request.stall_timeout = milliseconds(10000);
  std::stop_source stop;
  const auto start = std::chrono::steady_clock::now();
  std::jthread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    stop.request_stop();
  });
  auto answer = http->perform(request, sink, stop.get_token());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kCancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(500));
}

TEST_F(CurlTransportTest, RedirectsKeepTheRangeAndNeverCarryCredentialsToAnotherServer) {
  ScriptedHttp other([](const ScriptedRequest&) { return ScriptedReply{.body = "moved"}; });
  ScriptedHttp first([&](const ScriptedRequest& r) {
    if (r.target == "/a/key") return ScriptedReply{.status = 302, .headers = {{"Location", "/b"}}};
    return ScriptedReply{
        .status = 307, .headers = {{"Location", other.url() + "/c/../d"}}, .body = "ignored"};
  });
  HttpRequest request = get(first.url() + "/a/key");
  request.headers = {{"Range", "bytes=0-4"}, {"Authorization", "Basic abc"}};
  request.sign = SigV4{"AK", "SK", "TOKEN", "us-east-1"};
  request.sign.reset();
  request.max_redirects = 5;
  auto answer = http->perform(request, sink, {});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(sunk, "moved");
  ASSERT_EQ(first.requests().size(), 2u);
  EXPECT_EQ(first.requests()[1].header("authorization"), "Basic abc");
  ASSERT_EQ(other.requests().size(), 1u);
  EXPECT_EQ(other.requests()[0].target, "/c/../d");
  EXPECT_EQ(other.requests()[0].header("range"), "bytes=0-4");
  EXPECT_EQ(other.requests()[0].header("authorization"), "");

  request.headers = {};
  request.sign = SigV4{"AK", "SK", "TOKEN", "us-east-1"};
  ASSERT_TRUE(http->perform(request, sink, {}));
  EXPECT_NE(first.requests().back().header("authorization"), "");
  EXPECT_EQ(other.requests().back().header("authorization"), "");
  EXPECT_EQ(other.requests().back().header("x-amz-security-token"), "");
}

TEST_F(CurlTransportTest, OnlyTheRequestNamesProxies) {
  ScriptedHttp proxy([](const ScriptedRequest&) { return ScriptedReply{.body = "by proxy"}; });
  ScriptedHttp server([](const ScriptedRequest&) { return ScriptedReply{.body = "direct"}; });
  HttpRequest request;
  request.url = server.url() + "/k";
  for (const char* name : {"http_proxy", "all_proxy"}) setenv(name, "http://127.0.0.1:1", 1);
  auto body = [&] {
    auto answer = http->perform(request, nullptr, {});
    return answer ? answer->body : answer.error().message;
  };
  EXPECT_EQ(body(), "direct");
  request.proxies.https = proxy.url();
  EXPECT_EQ(body(), "direct");
  request.proxies.http = proxy.url();
  EXPECT_EQ(body(), "by proxy");
  EXPECT_EQ(proxy.requests().back().target, request.url);
  setenv("no_proxy", "127.0.0.1", 1);
  EXPECT_EQ(body(), "by proxy");
  request.proxies.except = "localhost,127.0.0.1";
  EXPECT_EQ(body(), "direct");
  for (const char* name : {"http_proxy", "all_proxy", "no_proxy"}) unsetenv(name);
}

TEST_F(CurlTransportTest, ALoopOfRedirectsEnds) {
  ScriptedHttp server([](const ScriptedRequest&) {
    return ScriptedReply{.status = 301, .headers = {{"Location", "/again"}}};
  });
  HttpRequest request = get(server.url());
  request.max_redirects = 5;
  EXPECT_EQ(code_of(request), Code::kInvalid);
  EXPECT_EQ(server.requests().size(), 6u);
  request.max_redirects = 0;
  auto answer = http->perform(request, sink, {});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 301);
}

TEST_F(CurlTransportTest, SignedRequestsCarryScopeTokenAndPayloadHash) {
  ScriptedHttp server([](const ScriptedRequest&) { return ScriptedReply{}; });
  HttpRequest request = get(server.url() + "/b/k%20y?a=1&b=");
  request.method = "PUT";
  request.body = "payload";
  request.headers = {{"If-Match", "\"e\""}};
  request.sign = SigV4{"AKID", "secret", "TOKEN", "eu-west-1"};
  ASSERT_TRUE(http->perform(request, sink, {}));
  const auto seen = server.requests().back();
  const std::string authorization = seen.header("authorization");
  EXPECT_NE(authorization.find("Credential=AKID/"), std::string::npos) << authorization;
  EXPECT_NE(authorization.find("/eu-west-1/s3/aws4_request"), std::string::npos);
  EXPECT_NE(authorization.find("x-amz-content-sha256;x-amz-date;x-amz-security-token"),
            std::string::npos)
      << authorization;
  EXPECT_EQ(seen.header("x-amz-content-sha256"), sha256(as_bytes("payload")).hex());
  EXPECT_EQ(seen.header("x-amz-security-token"), "TOKEN");
  EXPECT_EQ(seen.body, "payload");
  EXPECT_EQ(authorization.find("secret"), std::string::npos);
}

TEST_F(CurlTransportTest, LineBreaksCannotSmuggleHeaders) {
  ScriptedHttp server([](const ScriptedRequest&) { return ScriptedReply{}; });
  HttpRequest request = get(server.url());
  request.headers = {{"If-Match", "x\r\nEvil: 1"}};
  EXPECT_EQ(code_of(request), Code::kInvalid);
  EXPECT_EQ(code_of(get(server.url() + "/a\r\nEvil: 1")), Code::kInvalid);
  EXPECT_EQ(code_of(get("file:///etc/passwd")), Code::kInvalid);
  EXPECT_EQ(server.requests().size(), 0u);
}

}  // namespace
}  // namespace quiver::io
