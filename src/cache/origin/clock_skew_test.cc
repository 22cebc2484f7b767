// A machine whose clock is wrong: it signs for the store's time.
#include <atomic>

#include "cache/origin/testing/fixture.h"

namespace quiver::cache::testing {
namespace {

// The fixture's clock stands near 1970; the store's says 1994, and bears a quarter of an hour.
struct ClockSkewTest : FaultFixture {
  ClockSkewTest() { objects.put("set/k", "0123456789"); }
  void open_s3(const std::string& takes) {
    open(
        [this, takes](const ScriptedRequest& request) {
          if (request.header("x-amz-date").starts_with(takes)) {
            EXPECT_NE(request.header("authorization").find("/" + takes.substr(0, 8) + "/"),
                      std::string::npos);
            return objects.s3(request);
          }
          ++refused;
          return ScriptedReply{.status = 403,
                               .headers = {{"Date", "Sun, 06 Nov 1994 08:49:37 GMT"}},
                               .body = FakeObjects::error_xml("RequestTimeTooSkewed")};
        },
        {.url = "s3://b/set", .access_key = "AKID", .secret_key = "secret"});
  }
  std::atomic<int> refused = 0;
};

TEST_F(ClockSkewTest, SignsForTheStoresTimeFromThenOn) {
  open_s3("19941106T0849");
  EXPECT_EQ(read("k", 0, 4).value_or(""), "0123");
  EXPECT_EQ(read("k", 4, 4).value_or(""), "4567");
  EXPECT_TRUE(origin->head("k", {}));
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(retries(RetryClass::kClock), 1u);
}

TEST_F(ClockSkewTest, AHeadThatIsRefusedFirstGoesOnToo) {
  open_s3("19941106T0849");
  const auto head = origin->head("k", {});
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->version.size, Bytes(10));
}

TEST_F(ClockSkewTest, AStoreThatRefusesItsOwnTimeIsBelievedOnce) {
  open_s3("2500");
  const Error e = failure("k", 0, 4);
  EXPECT_EQ(e.code, Code::kDenied);
  EXPECT_NE(e.message.find("set the clock"), std::string::npos);
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace quiver::cache::testing
