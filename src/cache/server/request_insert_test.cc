#include <nlohmann/json.hpp>

#include "cache/server/testing/daemon_fixture.h"

namespace quiver::cache {
namespace {

using testing::RawClient;
using testing::TestData;
using InsertTest = testing::DaemonTest;

// What a digest brings must not take more memory than the daemon may have.
TEST_F(InsertTest, AnItemThatComesInPartsIsKeptWhenAllOfItIsRight) {
  settings.memory_limit = Bytes(8'000'000);
  start();
  RawClient client(socket());
  const TestData large(folder + "/large", 1, 3'000'000);
  const std::string& bytes = large.contents[0];
  const Sha256 hash = sha256(as_bytes(bytes));
  const auto send = [&](std::uint64_t offset, const Sha256& as, std::size_t part = kInsertPart) {
    const InsertPartRequest request{bytes.size(), offset, as, bytes.substr(offset, part)};
    return client.call<InsertReply>(Request::kInsertPart, request);
  };
  const auto send_all = [&](const Sha256& as) {
    Result<InsertReply> reply = InsertReply{true};
    for (std::uint64_t at = 0; at < bytes.size() && reply && reply->kept; at += kInsertPart) {
      reply = send(at, as);
    }
    return reply;
  };
  EXPECT_EQ(send(kInsertPart, hash).error().code, Code::kInvalid) << "it has no beginning";
  EXPECT_EQ(send_all(sha256(as_bytes("other"))).error().code, Code::kCorrupt);
  ASSERT_TRUE(send(0, hash)->kept);
  EXPECT_EQ(send(2 * kInsertPart, hash).error().code, Code::kInvalid) << "one is missing";
  const auto kept = send_all(hash);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_TRUE(kept->kept);
  ASSERT_TRUE(client.open(large));
  EXPECT_TRUE(eventually([&] { return client.read(0, bytes.size()) == bytes; }));
  EXPECT_EQ(nlohmann::json::parse(client.status())["datasets"][0]["origin_reads"], 0);
  EXPECT_EQ(nlohmann::json::parse(client.status())["disk"]["segments"], 1)
      << "nothing of the others stays";
}

TEST_F(InsertTest, APartOfWhatDoesNotFitIsNotKept) {
  settings.disk_limit.size = Bytes(1'000'000);
  start();
  RawClient client(socket());
  const InsertPartRequest request{2'000'000, 0, {}, std::string(1000, 'x')};
  const auto reply = client.call<InsertReply>(Request::kInsertPart, request);
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_FALSE(reply->kept);
}

}  // namespace
}  // namespace quiver::cache
