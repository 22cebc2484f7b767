// Sessions whose credentials expire while they read.
#include <gtest/gtest.h>

#include "cache/client/dataset.h"
#include "cache/origin/testing/fake_objects.h"
#include "cache/server/testing/daemon_fixture.h"

namespace quiver::cache {
namespace {

using std::chrono::seconds;
using testing::DaemonTest;
using testing::FakeObjects;
using testing::QuietLog;
using testing::RawClient;
using testing::ScriptedReply;
using testing::ScriptedRequest;

constexpr std::uint32_t kItems = 20;

// A daemon before a store that takes one token and says of all others that they have expired.
class Renewal : public DaemonTest {
 protected:
  Renewal() {
    ManifestBuilder builder("s3://b/set");
    for (std::uint32_t i = 0; i < kItems; ++i) {
      const std::string name = "item" + std::to_string(i), bytes(1000 + i, 'x');
      objects.put("set/" + name, bytes);
      const auto object =
          builder.add_object(name, {Bytes(bytes.size()), "\"v" + std::to_string(i + 1) + "\"", 0});
      builder.add_item(sha256(as_bytes(bytes)), Bytes(bytes.size()), name, kNoLabel, object, 0);
    }
    file = std::move(builder).finish().value();
    std::ofstream(folder + "/set.qvm", std::ios::binary) << file;
  }

  static Credentials with(const std::string& token) { return {"key", "secret", token}; }
  OriginSettings origin(const std::string& token) {
    OriginSettings way;
    way.url = "s3://b/set";
    way.endpoint = store.url();
    way.set_credentials(with(token));
    return way;
  }
  void take(const std::string& token) {
    taken.with([&](auto& t) { t = token; });
  }
  void open(RawClient& client, const std::string& token) {
    const io::Fd manifest = io::make_sealed_copy("manifest", as_bytes(file)).value();
    const Sha256 root = Manifest::open(io::Fd(::dup(manifest.get())), "test", true).value()->root();
    const auto opened =
        client.call<OpenReply>(Request::kOpen, OpenRequest{root, origin(token)}, {manifest.get()});
    ASSERT_TRUE(opened) << opened.error().message;
  }
  static Result<std::monostate> renew(RawClient& client, std::uint32_t dataset,
                                      const std::string& token) {
    return client.call<std::monostate>(Request::kRenew, RenewRequest{dataset, with(token)});
  }
  // What became of it: 0 when it is here, else the error's code.
  static int fetched(RawClient& client, std::uint32_t item) {
    const auto reply = client.fetch({item});
    EXPECT_TRUE(reply) << reply.error().message;
    return reply && reply->results[0].state == FetchResult::kHere ? 0 : reply->results[0].code;
  }

  FakeObjects objects;
  std::string file;
  Guarded<std::string> taken{"old"};
  std::atomic<int> refused = 0;
  io::testing::ScriptedHttp store{[this](const ScriptedRequest& request) {
    if (request.header("x-amz-security-token") == taken.with([](const auto& t) { return t; })) {
      return objects.s3(request);
    }
    ++refused;
    return ScriptedReply{.status = 400, .body = FakeObjects::error_xml("ExpiredToken")};
  }};
};

TEST_F(Renewal, ReplacesTheCredentialsOfTheSessionAlone) {
  start();
  RawClient mine(socket()), other(socket());
  open(mine, "old");
  EXPECT_EQ(fetched(mine, 0), 0);
  take("new");
  const int expired = static_cast<int>(Code::kExpired);
  EXPECT_EQ(fetched(mine, 1), expired);
  // Another session knows no handle of mine, and its own is not mine.
  EXPECT_EQ(renew(other, 0, "new").error().code, Code::kInvalid);
  open(other, "old");
  ASSERT_TRUE(renew(other, 0, "new"));
  EXPECT_EQ(fetched(mine, 1), expired);
  EXPECT_EQ(fetched(other, 2), 0);
  ASSERT_TRUE(renew(mine, 0, "new"));
  EXPECT_EQ(fetched(mine, 1), 0);
  EXPECT_EQ(renew(mine, 1, "new").error().code, Code::kInvalid);
}

TEST_F(Renewal, WhatStagingPutOffIsReadAtOnce) {
  take("new");
  start();
  RawClient client(socket());
  open(client, "old");
  auto board = client.join(1, kItems);
  ASSERT_TRUE(board);
  const std::vector<std::uint64_t> none(1, 0);
  board->begin(BoardEpoch{.epoch = 0, .order_seed = 5, .part = kItems}, none, none);
  ASSERT_TRUE(eventually([&] { return refused >= 5; })) << "it pauses for 8 s now";
  ASSERT_TRUE(renew(client, 0, "new"));
  const Instant before = clock.now();
  const auto warm = client.call<WarmReply>(Request::kWarm, WarmRequest{0, 10'000});
  ASSERT_TRUE(warm) << warm.error().message;
  EXPECT_EQ(warm->items_here, kItems);
  EXPECT_LT(clock.now() - before, seconds(5));
}

class Renewed : public Renewal {
 protected:
  void open_dataset() {
    DatasetOptions options;
    options.manifest_path = folder + "/set.qvm";
    options.origin = origin("old");
    options.credentials = credentials;
    options.settings.socket = socket();
    options.settings.cache_dir = cache();
    dataset = Dataset::open(options, Environment{files, *http, clock, job_log}).value();
  }
  Result<Tier> read(std::uint32_t item) {
    std::string bytes(1000 + item, '\0');
    const auto tier =
        dataset->read(ItemId(item), std::as_writable_bytes(std::span(bytes)), std::stop_token{});
    EXPECT_TRUE(!tier || bytes == std::string(1000 + item, 'x'));
    return tier;
  }
  // Renews when it is asked to, with this token.
  std::jthread renewer(const std::string& token) {
    credentials->renewed_by_somebody(true);
    return std::jthread([this, token](std::stop_token stop) {
      while (!stop.stop_requested()) {
        if (credentials->wanted(std::chrono::milliseconds(20))) credentials->renew(with(token));
      }
    });
  }

  std::shared_ptr<RenewableCredentials> credentials =
      std::make_shared<RenewableCredentials>(with("old"));
  QuietLog job_log;
  std::shared_ptr<Dataset> dataset;
};

TEST_F(Renewed, AReadThatFindsThemExpiredWaitsForOthersAndGoesOn) {
  start();
  open_dataset();
  ASSERT_EQ(read(0), Tier::kFetched);
  take("new");
  const auto renewing = renewer("new");
  for (std::uint32_t i = 1; i < 5; ++i) EXPECT_EQ(read(i), Tier::kFetched) << i;
  EXPECT_EQ(refused, 1);
  EXPECT_FALSE(dataset->degraded());
  EXPECT_TRUE(job_log.warnings().empty());
}

TEST_F(Renewed, BeforeTheyExpireNothingIsRefused) {
  start();
  open_dataset();
  ASSERT_EQ(read(0), Tier::kFetched);
  credentials->renew(with("new"));
  dataset->credentials_renewed();
  take("new");
  EXPECT_EQ(read(1), Tier::kFetched);
  // A daemon that comes later gets them too.
  stop();
  start();
  for (std::uint32_t i = 2; i < kItems && read(i).value_or(Tier::kDirect) == Tier::kDirect; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_EQ(dataset->generation(), 2u);
  EXPECT_EQ(refused, 0);
}

TEST_F(Renewed, WithoutOthersItIsTheOriginsError) {
  start();
  open_dataset();
  take("new");
  const auto renewing = renewer("old");
  const auto failed = read(1);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kExpired) << failed.error().message;
  EXPECT_LE(refused, 3);
}

}  // namespace
}  // namespace quiver::cache
