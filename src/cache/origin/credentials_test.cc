#include "cache/origin/credentials.h"

#include <atomic>

#include "cache/origin/testing/fixture.h"

namespace quiver::cache::testing {
namespace {

using std::chrono::seconds;

// A store that takes one key, and says of all others that their token has expired.
struct CredentialsTest : FaultFixture {
  CredentialsTest() {
    objects.put("set/k", "0123456789");
    credentials = std::make_shared<RenewableCredentials>(key("A"));
  }
  ~CredentialsTest() override { credentials->renewed_by_somebody(false); }

  static Credentials key(const std::string& name) { return {name, "secret", "token" + name}; }
  void open_s3() {
    open(
        [this](const ScriptedRequest& request) {
          const std::string token = request.header("x-amz-security-token");
          if (token == "token" + taken.with([](const auto& t) { return t; })) {
            return objects.s3(request);
          }
          ++refused;
          return ScriptedReply{.status = 400, .body = FakeObjects::error_xml("ExpiredToken")};
        },
        {.url = "s3://b/set"});
  }
  void take(const std::string& name) {
    taken.with([&](auto& t) { t = name; });
  }
  // Answers each request for other credentials with this one's.
  std::jthread renewer(const std::string& name) {
    credentials->renewed_by_somebody(true);
    return std::jthread([this, name] {
      while (!over) {
        if (!credentials->wanted(std::chrono::milliseconds(20))) continue;
        ++asked;
        credentials->renew(key(name));
      }
    });
  }

  Guarded<std::string> taken{"A"};
  std::atomic<int> refused = 0, asked = 0;
  std::atomic<bool> over = false;
};

TEST_F(CredentialsTest, WhatExpiresIsRenewedAndAskedForAgain) {
  open_s3();
  EXPECT_EQ(read("k", 0, 4).value_or(""), "0123");
  take("B");
  const auto thread = renewer("B");
  EXPECT_EQ(read("k", 2, 4).value_or(""), "2345");
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(retries(RetryClass::kExpired), 1u);
  take("C");
  credentials->renew(key("C"));  // before it expires: nothing is refused
  const auto head = origin->head("k", {});
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->version.size, Bytes(10));
  EXPECT_EQ(refused, 1);
  over = true;
}

TEST_F(CredentialsTest, AHeadAndAListingGoOnToo) {
  open_s3();
  take("B");
  {
    const auto thread = renewer("B");
    EXPECT_TRUE(origin->head("k", {}));
    over = true;
  }
  take("C");
  over = false;
  const auto thread = renewer("C");
  int listed = 0;
  EXPECT_TRUE(origin->list(
      [&](const ListedObject&) -> Status {
        ++listed;
        return {};
      },
      {}));
  EXPECT_EQ(listed, 1);
  over = true;
}

TEST_F(CredentialsTest, ThoseWhoWaitTogetherAreRenewedOnce) {
  open_s3();
  take("B");
  std::atomic<int> read_right = 0;
  {
    std::vector<std::jthread> readers;
    const auto thread = renewer("B");
    for (int i = 0; i < 8; ++i) {
      readers.emplace_back([&] { read_right += read("k", 0, 10).value_or("") == "0123456789"; });
    }
    readers.clear();
    over = true;
  }
  EXPECT_EQ(read_right, 8);
  EXPECT_LE(asked, 2) << "one more where somebody was refused just before";
  EXPECT_EQ(credentials->now().version, 1u);
}

TEST_F(CredentialsTest, TheSameOnceMoreOrNobodyWhoRenewsIsTheRefusal) {
  open_s3();
  take("B");
  EXPECT_EQ(failure("k", 0, 4).code, Code::kExpired);
  EXPECT_EQ(refused, 1);
  const auto thread = renewer("A");
  EXPECT_EQ(failure("k", 0, 4).code, Code::kExpired);
  EXPECT_EQ(refused, 2);
  over = true;
}

TEST_F(CredentialsTest, OthersThatHaveExpiredTooEndAfterAFewAttempts) {
  open_s3();
  take("never");
  credentials->renewed_by_somebody(true);
  std::jthread thread([this] {
    while (!over) {
      if (credentials->wanted(std::chrono::milliseconds(20))) {
        credentials->renew(key(std::to_string(++asked)));
      }
    }
  });
  EXPECT_EQ(failure("k", 0, 4).code, Code::kExpired);
  EXPECT_LE(refused, 6);
  over = true;
}

TEST_F(CredentialsTest, AStopEndsTheWait) {
  credentials->renewed_by_somebody(true);
  std::stop_source source;
  std::jthread stopper([&] {
    EXPECT_TRUE(credentials->wanted(seconds(10)));
    source.request_stop();
  });
  EXPECT_FALSE(credentials->newer_than(0, source.get_token()));
}

}  // namespace
}  // namespace quiver::cache::testing
