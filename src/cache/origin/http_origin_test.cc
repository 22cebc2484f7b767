#include "cache/origin/http_origin.h"

#include <sys/mman.h>

#include "cache/origin/pace.h"
#include "cache/origin/testing/fixture.h"

namespace quiver::cache::testing {
namespace {

using Ending = ScriptedReply::Ending;
using std::chrono::milliseconds;

const std::string kBytes = "0123456789abcdefghij";

struct HttpOriginTest : FaultFixture {
  HttpOriginTest() { objects.put("k", kBytes); }

  // Serves rightly, but for the first `times` GETs what `broken` makes of the right answer.
  Origin& break_gets(int times, std::function<ScriptedReply(ScriptedReply)> broken,
                     OriginSettings settings = {}) {
    return open(
        [this, times, broken](const ScriptedRequest& r) {
          ScriptedReply right = objects.web(r);
          return r.method == "GET" && ++gets <= times ? broken(std::move(right)) : right;
        },
        std::move(settings));
  }
  static ScriptedReply with_header(ScriptedReply r, const std::string& name, std::string value) {
    std::erase_if(r.headers, [&](const auto& h) { return h.first == name; });
    r.headers.emplace_back(name, std::move(value));
    return r;
  }
  ObjectVersion version() { return origin->head("k", {})->version; }

  std::atomic<int> gets = 0;
};

TEST_F(HttpOriginTest, WhatCanPassIsRetriedAndCountedByClass) {
  struct Fault {
    RetryClass counted;
    std::function<ScriptedReply(ScriptedReply)> make;
  };
  auto status = [](int code) {
    return [code](ScriptedReply) { return ScriptedReply{.status = code}; };
  };
  const std::vector<Fault> faults = {
      {RetryClass::kServer, status(500)},
      {RetryClass::kServer, status(502)},
      {RetryClass::kServer, status(504)},
      {RetryClass::kThrottled, status(503)},
      {RetryClass::kThrottled, status(429)},
      {RetryClass::kTimeout, status(408)},
      {RetryClass::kTimeout, [](ScriptedReply r) { return r.delay = milliseconds(2000), r; }},
      {RetryClass::kTimeout,
       [](ScriptedReply r) {
         r.content_length = r.body.size();
         r.cut_after = 3;
         r.stall = milliseconds(2000);
         return r;
       }},
      {RetryClass::kShort,
       [](ScriptedReply r) {
         r.content_length = r.body.size();
         r.cut_after = 3;
         r.ending = Ending::kClose;
         return r;
       }},
      {RetryClass::kShort,
       [](ScriptedReply r) {
         return r.chunked = true, r.cut_after = 3, r.ending = Ending::kReset, r;
       }},
      // Ends in an orderly way, without having told its length.
      {RetryClass::kShort,
       [](ScriptedReply r) {
         r.announce_length = false;
         r.body.resize(r.body.size() * 9 / 10);
         return r;
       }},
      {RetryClass::kReset,
       [](ScriptedReply) { return ScriptedReply{.raw = "H", .ending = Ending::kReset}; }},
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    gets = 0;
    break_gets(2, faults[i].make);
    // libcurl itself tries again when a connection that it kept is reset: this one must be new.
    const bool kept = faults[i].counted != RetryClass::kReset;
    auto got = read("k", 2, 15, kept ? version() : ObjectVersion{});
    ASSERT_TRUE(got) << i << ": " << got.error().message;
    EXPECT_EQ(*got, kBytes.substr(2, 15)) << i;
    EXPECT_EQ(retries(faults[i].counted), 2u) << i;
    EXPECT_EQ(origin->stats().retries, 2u) << i;
    EXPECT_EQ(origin->stats().gets, 3u) << i;
  }
}

TEST_F(HttpOriginTest, DeadNamesAndDeadHostsAreRetriedAndNamed) {
  open([](const ScriptedRequest&) { return ScriptedReply{}; }, {});
  const std::string dead = server->url();
  server.reset();
  auto reopen = [&](const std::string& url) {
    OriginSettings settings;
    settings.url = url;
    settings.max_attempts = 3;
    origin = *open_origin(settings, {files, *http, clock, 1, waiter()});
  };
  reopen(dead);
  EXPECT_EQ(failure("k", 0, 1).code, Code::kUnreachable);
  EXPECT_EQ(retries(RetryClass::kConnect), 2u);
  reopen("http://no-such-host.invalid/base");
  EXPECT_EQ(failure("k", 0, 1).code, Code::kUnreachable);
  EXPECT_EQ(retries(RetryClass::kName), 2u);
}

TEST_F(HttpOriginTest, WhatCannotPassIsNotRetried) {
  for (auto [status, code] : std::vector<std::pair<int, Code>>{{401, Code::kDenied},
                                                               {403, Code::kDenied},
                                                               {404, Code::kNotFound},
                                                               {410, Code::kNotFound},
                                                               {412, Code::kChanged},
                                                               {400, Code::kInvalid},
                                                               {204, Code::kCorrupt}}) {
    gets = 0;
    break_gets(1000, [status = status](ScriptedReply) { return ScriptedReply{.status = status}; });
    EXPECT_EQ(failure("k", 0, 5).code, code) << status;
    EXPECT_EQ(origin->stats().gets, 1u) << status;
  }
}

TEST_F(HttpOriginTest, AttemptsAndTimeAreBounded) {
  auto busy = [](ScriptedReply) { return ScriptedReply{.status = 500}; };
  break_gets(1000, busy);
  EXPECT_EQ(failure("k", 0, 5).code, Code::kUnreachable);
  EXPECT_EQ(origin->stats().gets, 6u);
  OriginSettings patient;
  patient.max_attempts = 1000;
  patient.retry_budget = milliseconds(5000);
  gets = 0;
  waited = 0;
  break_gets(1000, busy, patient);
  EXPECT_EQ(failure("k", 0, 5).code, Code::kUnreachable);
  EXPECT_LE(waited, 5000);
  EXPECT_GT(gets, 3);
}

TEST_F(HttpOriginTest, RetryAfterIsHonouredWithinBounds) {
  auto busy = [](const char* after) {
    return [after](ScriptedReply) {
      return ScriptedReply{.status = 503, .headers = {{"Retry-After", after}}};
    };
  };
  break_gets(1, busy("7"));
  ASSERT_TRUE(read("k", 0, 5));
  EXPECT_GE(waited, 7000);
  EXPECT_LE(waited, 7100);
  waited = gets = 0;
  break_gets(1, busy("86400"));
  ASSERT_TRUE(read("k", 0, 5));
  EXPECT_EQ(waited, 20000);
}

TEST_F(HttpOriginTest, AnotherVersionIsNeverRead) {
  for (const char* etag : {"\"other\"", "W/\"v2\""}) {
    break_gets(1000, [etag](ScriptedReply r) { return with_header(r, "ETag", etag); });
    EXPECT_EQ(failure("k", 0, 5, version()).code, Code::kChanged) << etag;
    gets = 0;
  }
  break_gets(1000, [](ScriptedReply r) { return with_header(r, "Content-Range", "bytes 0-4/21"); });
  EXPECT_EQ(failure("k", 0, 5, version()).code, Code::kChanged);
}

TEST_F(HttpOriginTest, WeakETagsAreComparedButNotSent) {
  open([&](const ScriptedRequest& r) { return with_header(objects.web(r), "ETag", "W/\"v1\""); },
       {});
  const ObjectVersion v = version();
  EXPECT_EQ(*read("k", 0, 5, v), "01234");
  EXPECT_EQ(server->requests().back().header("if-match"), "");
}

TEST_F(HttpOriginTest, WithoutETagTheDateDecides) {
  std::string date = "Sun, 06 Nov 1994 08:49:37 GMT";
  open(
      [&](const ScriptedRequest& r) {
        return with_header(with_header(objects.web(r), "ETag", ""), "Last-Modified", date);
      },
      {});
  const ObjectVersion v = version();
  EXPECT_EQ(v.etag, "");
  EXPECT_EQ(*read("k", 0, 5, v), "01234");
  date = "Sun, 06 Nov 1994 08:49:38 GMT";
  EXPECT_EQ(failure("k", 0, 5, v).code, Code::kChanged);
}

TEST_F(HttpOriginTest, AWrongRangeIsCorrupt) {
  for (const char* range : {"bytes 1-5/20", "bytes 0-5/20", "bytes 0-3/20", "bytes */20", "garbage",
                            "bytes 4-0/20", "bytes 0-99999999999999999999/20", ""}) {
    gets = 0;
    break_gets(1000, [range](ScriptedReply r) { return with_header(r, "Content-Range", range); });
    EXPECT_EQ(failure("k", 0, 5, version()).code, Code::kCorrupt) << range;
    EXPECT_EQ(origin->stats().gets, 1u);
  }
}

TEST_F(HttpOriginTest, ALongerBodyIsCorrupt) {
  break_gets(1000, [](ScriptedReply r) { return r.body += "more", r; });
  EXPECT_EQ(failure("k", 0, 5, version()).code, Code::kCorrupt);
  gets = 0;
  break_gets(1000, [](ScriptedReply r) { return r.body += "more", r.chunked = true, r; });
  EXPECT_EQ(failure("k", 0, 5, version()).code, Code::kCorrupt);
}

TEST_F(HttpOriginTest, AServerWithoutRangesServesWholeObjectsOnly) {
  break_gets(1000, [](ScriptedReply) {
    return ScriptedReply{.headers = {{"ETag", "\"v1\""}}, .body = kBytes};
  });
  EXPECT_EQ(*read("k", 0, kBytes.size(), version()), kBytes);
  const Error part = failure("k", 0, 5, version());
  EXPECT_EQ(part.code, Code::kCorrupt);
  EXPECT_NE(part.message.find("must support ranges"), std::string::npos);
  EXPECT_EQ(failure("k", 5, 15, version()).code, Code::kCorrupt);
}

TEST_F(HttpOriginTest, ABrokenReadGoesOnWhereItBroke) {
  std::string big(5 << 20, 0);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 7 + i / 251);
  objects.put("big", big);
  open(
      [&](const ScriptedRequest& r) {
        ScriptedReply reply = objects.web(r);
        if (r.method == "GET" && reply.body.size() > 200'000) {
          reply.content_length = reply.body.size();
          reply.cut_after = 200'000;
          reply.ending = Ending::kClose;
        }
        return reply;
      },
      {});
  const ObjectVersion v = origin->head("big", {})->version;
  auto got = read("big", 0, big.size(), v);
  ASSERT_TRUE(got) << got.error().message;  // 26 breaks: far more than attempts at one place
  EXPECT_TRUE(*got == big);
  EXPECT_LT(origin->stats().body_bytes.value, big.size() * 11 / 10);
  EXPECT_GE(retries(RetryClass::kShort), 20u);
  EXPECT_EQ(server->requests().back().header("if-match"), v.etag);
}

TEST_F(HttpOriginTest, AnObjectThatChangesBetweenTwoPiecesIsChanged) {
  open(
      [&](const ScriptedRequest& r) {
        ScriptedReply reply = objects.web(r);
        if (r.method == "GET" && ++gets == 1) {
          reply.content_length = reply.body.size();
          reply.cut_after = 5;
          reply.ending = Ending::kClose;
          objects.put("k", "ABCDEFGHIJKLMNOPQRST");
        }
        return reply;
      },
      {});
  EXPECT_EQ(failure("k", 0, 20, version()).code, Code::kChanged);
  objects.put("k", kBytes);
  gets = 0;
  EXPECT_EQ(failure("k", 0, 20).code, Code::kChanged);  // pinned by its own first answer
}

TEST_F(HttpOriginTest, RedirectsKeepTheRange) {
  io::testing::ScriptedHttp other([&](const ScriptedRequest& r) { return objects.web(r); });
  open(
      [&](const ScriptedRequest& r) {
        return ScriptedReply{.status = 302, .headers = {{"Location", other.url() + r.target}}};
      },
      {});
  EXPECT_EQ(*read("k", 3, 4, version()), "3456");
  EXPECT_EQ(other.requests().back().header("range"), "bytes=3-6");
  EXPECT_EQ(other.requests().back().header("if-match"), "\"v1\"");
}

TEST_F(HttpOriginTest, TheRateLimitHoldsForAllReaders) {
  objects.put("big", std::string(100'000, 'x'));
  OriginSettings settings;
  settings.rate_limit = Bytes(200'000);
  break_gets(0, {}, settings);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(read("big", 0, 100'000));
  EXPECT_GE(waited, 1900);  // 400 kB at 200 kB/s, less the burst
  EXPECT_LE(waited, 2100);
}

TEST_F(HttpOriginTest, TheRateLimitHoldsForAllOriginsOfAServer) {
  objects.put("big", std::string(100'000, 'x'));
  OriginPaces paces(clock);
  OriginSettings settings;
  settings.rate_limit = Bytes(200'000);
  break_gets(0, {}, settings);
  for (const char* folder : {"/base", "/base/", "/base"}) {
    settings.url = server->url() + folder;
    origin = *open_origin(settings, {files, *http, clock, 1, waiter(), &paces});
    ASSERT_TRUE(read("big", 0, 100'000));
    const std::shared_ptr<Origin> kept = std::move(origin);  // jobs overlap
    origin = *open_origin(settings, {files, *http, clock, 1, waiter(), &paces});
    ASSERT_TRUE(read("big", 0, 100'000));
    if (folder == std::string("/base/")) continue;
    EXPECT_GE(waited, 900);  // 200 kB at 200 kB/s, less the burst
    waited = 0;
  }
}

TEST_F(HttpOriginTest, SlowDownOfOneReaderSlowsDownAll) {
  OriginPaces paces(clock);
  break_gets(0, {});
  OriginSettings settings;
  settings.url = server->url() + "/base";
  const OriginContext context{files, *http, clock, 1, waiter(), &paces};
  const auto other = *open_origin(settings, context);
  EXPECT_EQ(other->stats().permitted, RequestWindow::kFirst);
  gets = 0;
  server = std::make_unique<io::testing::ScriptedHttp>([&](const ScriptedRequest& r) {
    return ++gets == 1 ? ScriptedReply{.status = 429, .headers = {{"Retry-After", "7"}}}
                       : objects.web(r);
  });
  settings.url = server->url() + "/base";
  origin = *open_origin(settings, context);
  const auto same = *open_origin(settings, context);
  ASSERT_TRUE(read("k", 0, 5));
  EXPECT_LT(same->stats().permitted, RequestWindow::kFirst);
  EXPECT_EQ(other->stats().permitted, RequestWindow::kFirst);  // of another server
}

TEST_F(HttpOriginTest, AnItemMayBeLargerThanAnyDefault) {
  struct Recording final : io::HttpTransport {
    Result<io::HttpResponse> perform(const io::HttpRequest& request, const io::BodySink&,
                                     std::stop_token) override {
      most = request.max_body;
      return error(Code::kDenied, "not today");
    }
    Bytes most;
  } recording;
  const std::size_t size = std::size_t{3} << 30;
  // Never touched, so no memory.
  void* room = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(room, MAP_FAILED);
  const auto over = *open_origin({.url = "http://h/p"}, {files, recording, clock, 1, waiter()});
  const MutableByteSpan out(static_cast<std::byte*>(room), size);
  EXPECT_FALSE(over->read({"k", 0, {Bytes(size), "\"e\"", 0}}, out, {}));
  EXPECT_GE(recording.most, Bytes(size));
  ::munmap(room, size);
}

TEST_F(HttpOriginTest, RequestsAreCountedByKindRetriesIncluded) {
  std::atomic<int> seen = 0;
  open(
      [&](const ScriptedRequest& r) {
        return ++seen % 2 ? ScriptedReply{.status = 500} : objects.web(r);
      },
      {});
  ASSERT_TRUE(origin->list([](ListedObject) -> Status { return {}; }, {}));
  ASSERT_TRUE(read("k", 0, 5));
  const OriginStats stats = origin->stats();
  EXPECT_EQ(stats.lists, 2u);  // of the index; each of its lines is a HEAD
  EXPECT_EQ(stats.heads, 2u);
  EXPECT_EQ(stats.gets, 2u);
  EXPECT_EQ(stats.retries, 3u);
}

TEST_F(HttpOriginTest, AMissingIndexSaysWhatToDo) {
  open([](const ScriptedRequest&) { return ScriptedReply{.status = 404}; }, {});
  auto listed = origin->list([](ListedObject) -> Status { return {}; }, {});
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Code::kNotFound);
  EXPECT_NE(listed.error().message.find("index.txt"), std::string::npos);
}

TEST_F(HttpOriginTest, UrlsThatNameNoFolderAreRefused) {
  for (const char* url :
       {"http://", "http://user:secret@host/x", "https://host/x?token=secret", "ftp://host/x",
        "relative/path", "http://user:p@secret@host/x", "http://user:pa/secret@host/x",
        "http://user:pa?secret@host/x", "http://user:pa#secret@host", "HTTP://user:secret@host",
        "ftp://user:secret@host/x", "s3://user:secret@bucket/x", "s3://user:p@secret@b/x"}) {
    OriginSettings settings;
    settings.url = url;
    auto opened = open_origin(settings, {files, *http, clock});
    ASSERT_FALSE(opened) << url;
    EXPECT_EQ(opened.error().code, Code::kInvalid);
    EXPECT_EQ(opened.error().message.find("secret"), std::string::npos);
  }
}

TEST_F(HttpOriginTest, TheSchemeIsReadInAnyCase) {
  open([&](const ScriptedRequest& r) { return objects.web(r); }, {});
  OriginSettings settings;
  settings.url = "HTTP" + server->url().substr(4) + "/base";
  origin = *open_origin(settings, {files, *http, clock, 1, waiter()});
  EXPECT_EQ(*read("k", 0, 5), "01234");
}

}  // namespace
}  // namespace quiver::cache::testing
