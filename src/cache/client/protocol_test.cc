#include "cache/client/protocol.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <map>

namespace quiver::cache {
namespace {

Token token(std::uint8_t first) {
  Token t;
  for (std::size_t i = 0; i < t.size(); ++i) t[i] = static_cast<std::uint8_t>(first + i);
  return t;
}

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

OpenRequest an_open() {
  OpenRequest open;
  open.root = sha256(as_bytes("root"));
  open.origin = {"s3://b/p", "http://e:1", "eu", "path",
                 "ak",       "sk",         "st", "/ca",
                 false,      Bytes(4000),  3,    std::chrono::milliseconds(1500)};
  open.origin.proxies = {"http://p:1", "http://p:2", "h,.x"};
  return open;
}

std::map<std::string, std::string> examples() {
  std::map<std::string, std::string> m;
  m["HelloRequest"] = encode(HelloRequest{kProtocolVersion, "quiver-cache 0.1.0", token(1)});
  m["HelloReply"] =
      encode(HelloReply{kProtocolVersion, "quiver-cache 0.1.0", 4711, token(2), "/var/tmp/q"});
  m["OpenRequest"] = encode(an_open());
  m["OpenReply"] = encode(OpenReply{7, "0123456789abcdef", 1000, 64});
  m["RenewRequest"] = encode(RenewRequest{7, {"ak", "sk", "st"}});
  m["JoinRequest"] = encode(JoinRequest{7, token(3), "train.py", 4, 2, 256});
  m["LeaveRequest"] = encode(LeaveRequest{7, token(3), 2});
  m["SegmentsRequest"] = encode(SegmentsRequest{7, {1, 300}});
  m["SegmentsReply"] = encode(SegmentsReply{{300}});
  m["FetchRequest"] = encode(FetchRequest{7, {5, 6}, 250});
  m["FetchReply"] = encode(
      FetchReply{{{FetchResult::kHere, 0, ""}, {FetchResult::kFailed, 1, "no such object"}}});
  m["InsertRequest"] = encode(InsertRequest{sha256(as_bytes("x")), "x"});
  m["InsertPartRequest"] = encode(InsertPartRequest{300, 299, sha256(as_bytes("x")), "x"});
  m["InsertReply"] = encode(InsertReply{true});
  m["DamagedRequest"] = encode(DamagedRequest{7, 5, 300, 4096});
  m["ContentsRequest"] = encode(ContentsRequest{7, sha256(as_bytes("x"))});
  m["ContentsReply"] = encode(ContentsReply{300});
  m["DamagedReply"] = encode(DamagedReply{true});
  m["ReportRequest"] = encode(ReportRequest{7, token(3), 2, 5, 10, 40, 2560, 600, 3, 1.5, 0.25});
  m["StatusReply"] = encode(StatusReply{"{}"});
  m["WarmRequest"] = encode(WarmRequest{7, 500});
  m["WarmReply"] = encode(WarmReply{1000, 200, 250, 1, 20000, 25000, "denied"});
  m["EvictRequest"] = encode(EvictRequest{"0123456789abcdef"});
  m["EvictReply"] = encode(EvictReply{4096, 1});
  return m;
}

// The bytes never change within a protocol version: daemons and clients of a version mix.
TEST(Protocol, GoldenBytes) {
  std::ifstream in(QUIVER_SOURCE_DIR "/tests/vectors/daemon_protocol.txt");
  ASSERT_TRUE(in);
  std::map<std::string, std::string> golden;
  for (std::string name, bytes; in >> name >> bytes;) golden[name] = bytes;
  const auto now = examples();
  ASSERT_EQ(golden.size(), now.size());
  for (const auto& [name, bytes] : now) EXPECT_EQ(golden[name], hex(bytes)) << name;
}

TEST(Protocol, CredentialsAndAllOtherFieldsOfAnOriginArrive) {
  const auto back = decode<OpenRequest>(encode(an_open()));
  ASSERT_TRUE(back);
  EXPECT_EQ(encode(*back), encode(an_open()));
  EXPECT_EQ(back->origin.secret_key, "sk");
  EXPECT_EQ(back->origin.session_token, "st");
  EXPECT_FALSE(back->origin.verify_tls);
  EXPECT_EQ(back->origin.rate_limit, Bytes(4000));
  EXPECT_EQ(back->origin.max_attempts, 3);
  EXPECT_EQ(back->origin.retry_budget.count(), 1500);
  EXPECT_EQ(back->origin.proxies.http, "http://p:1");
  EXPECT_EQ(back->origin.proxies.https, "http://p:2");
  EXPECT_EQ(back->origin.proxies.except, "h,.x");
}

TEST(Protocol, FetchRoundTrip) {
  EXPECT_TRUE(rc::check([](const std::vector<std::uint32_t>& items, std::uint32_t wait) {
    const auto back = decode<FetchRequest>(encode(FetchRequest{3, items, wait}));
    RC_ASSERT(back.has_value());
    RC_ASSERT(back->items == items);
    RC_ASSERT(back->wait_ms == wait);
  }));
}

TEST(Protocol, ATruncatedOrLongerMessageIsCorrupt) {
  for (const std::string& whole : {encode(an_open())}) {
    for (std::size_t n = 0; n < whole.size(); ++n) {
      const auto cut = decode<OpenRequest>(std::string_view(whole).substr(0, n));
      ASSERT_FALSE(cut);
      EXPECT_EQ(cut.error().code, Code::kCorrupt);
    }
    EXPECT_FALSE(decode<OpenRequest>(whole + "x"));
  }
}

TEST(Protocol, AGreetingOfALaterVersionIsUnderstood) {
  const auto reply = decode<HelloReply>(encode(HelloReply{2, "later", 1, {}, "/c"}) + "more");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->protocol, 2u);
  EXPECT_EQ(reply->software, "later");
}

TEST(Protocol, ACountThatCannotBeIsRefusedBeforeMemoryIsTaken) {
  EXPECT_EQ(decode<SegmentsReply>("\xff\xff\xff\xff").error().code, Code::kCorrupt);
  EXPECT_EQ(decode<FetchReply>("\xff\xff\xff\x0f").error().code, Code::kCorrupt);
}

TEST(Protocol, AnUnknownFetchStateIsCorrupt) {
  std::string bytes = encode(FetchReply{{{FetchResult::kHere, 0, ""}}});
  bytes[4] = 3;
  EXPECT_EQ(decode<FetchReply>(bytes).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace quiver::cache
