// A store whose name leads elsewhere from one moment to the next.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>

#include "io/http.h"
#include "io/testing/scripted_http.h"

namespace {
std::atomic<int> port_now = 0, lookups = 0;
}

// libcurl's lookups come here: moving.test leads to the loopback, to whatever port holds now.
extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* host,
                                                                  const char* service,
                                                                  const addrinfo* hints,
                                                                  addrinfo** result) {
  const auto real = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (host == nullptr || std::string_view(host) != "moving.test") {
    return real(host, service, hints, result);
  }
  ++lookups;
  return real("127.0.0.1", std::to_string(port_now.load()).c_str(), hints, result);
}

namespace quiver::io {
namespace {

using testing::ScriptedHttp;
using testing::ScriptedReply;
using testing::ScriptedRequest;

TEST(NameChange, AConnectionThatIsLostIsMadeAnewToWhereTheNameLeadsNow) {
  std::optional<ScriptedHttp> before(
      [](const ScriptedRequest&) { return ScriptedReply{.body = "before"}; });
  ScriptedHttp after([](const ScriptedRequest&) { return ScriptedReply{.body = "after"}; });
  const auto transport = make_curl_transport(1);
  const auto body = [&] {
    HttpRequest request;
    request.url = "http://moving.test/k";
    const auto answer = transport->perform(request, nullptr, {});
    return answer ? answer->body : answer.error().message;
  };
  port_now = before->port();
  EXPECT_EQ(body(), "before");
  EXPECT_EQ(body(), "before");
  if (lookups == 0) GTEST_SKIP() << "this libcurl does not look names up by getaddrinfo()";
  EXPECT_EQ(lookups, 1) << "a connection that is kept asks nobody";
  port_now = after.port();
  EXPECT_EQ(body(), "before");
  before.reset();
  EXPECT_EQ(body(), "after");
  EXPECT_EQ(lookups, 2);
}

}  // namespace
}  // namespace quiver::io
