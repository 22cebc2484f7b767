#include "cache/server/metrics_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>

#include "cache/server/daemon_limits.h"
#include "io/test_directory.h"

namespace quiver::cache {
namespace {

using std::chrono::seconds;

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() : path(directory.path() + "/metrics") { start(path); }

  void start(const std::string& address) {
    server.reset();
    auto made = MetricsServer::start(
        address,
        [this]() -> Result<std::string> {
          ++served;
          if (failing) return error(Code::kUnavailable, "the daemon is stopping");
          return std::string("quiver_up 1\n");
        },
        clock);
    ASSERT_TRUE(made) << made.error().message;
    server = *std::move(made);
  }
  io::UnixSocket connect() {
    return io::UnixSocket::connect(path, clock.now() + seconds(5)).value();
  }
  // All that comes until the server closes.
  std::string rest(io::UnixSocket& socket) {
    std::string text;
    std::array<std::byte, 4096> some;
    for (;;) {
      const auto got = socket.receive_some(some, clock.now() + seconds(10));
      if (!got) ADD_FAILURE() << got.error().message;
      if (!got || *got == 0) return text;
      text += as_text(ByteSpan(some).first(*got));
    }
  }
  std::string ask(const std::string& request) {
    io::UnixSocket socket = connect();
    static_cast<void>(socket.send(as_bytes(request), {}, clock.now() + seconds(5)));
    return rest(socket);
  }
  std::string status(const std::string& request) {
    const std::string reply = ask(request);
    return reply.substr(0, reply.find("\r\n"));
  }

  io::TestDirectory directory;
  RealClock clock;
  std::string path;
  std::atomic<int> served = 0;
  std::atomic<bool> failing = false;
  std::unique_ptr<MetricsServer> server;
};

constexpr const char* kGet = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST_F(MetricsServerTest, ServesItsPage) {
  const std::string reply = ask(kGet);
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(reply.ends_with("\r\n\r\nquiver_up 1\n"));
  EXPECT_NE(reply.find("Content-Length: 12\r\n"), std::string::npos);
  EXPECT_NE(reply.find("Content-Type: text/plain; version=0.0.4"), std::string::npos);
  EXPECT_EQ(status("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK");
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  failing = true;
  EXPECT_EQ(status(kGet), "HTTP/1.1 503 Service Unavailable");
}

TEST_F(MetricsServerTest, AnythingElseIsRefused) {
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status("GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status("POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n123456789"),
            "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(status("nonsense\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status(" / HTTP/1.1\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status("GET /metrics SMTP\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\nhost:  rebound.example:9100\r\n\r\n"),
            "HTTP/1.1 403 Forbidden");
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\nHost: [::1]:9100\r\n\r\n"), "HTTP/1.1 200 OK");
  const std::string endless = "GET /metrics HTTP/1.1\r\nX: " + std::string(1 << 20, 'x');
  EXPECT_EQ(status(endless), "HTTP/1.1 431 Request Header Fields Too Large");
  EXPECT_EQ(served, 1);
}

TEST_F(MetricsServerTest, ARequestInPiecesIsOne) {
  io::UnixSocket socket = connect();
  for (const char* c = kGet; *c != 0; ++c) {
    ASSERT_TRUE(socket.send(as_bytes(std::string(1, *c)), {}, clock.now() + seconds(5)));
  }
  EXPECT_TRUE(rest(socket).starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_F(MetricsServerTest, WhateverComesNobodyElseMinds) {
  EXPECT_TRUE(rc::check([&] {
    const auto junk = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
    io::UnixSocket socket = connect();
    static_cast<void>(socket.send(as_bytes(junk), {}, clock.now() + seconds(5)));
    if (*rc::gen::arbitrary<bool>()) socket.shutdown();
  }));
  EXPECT_EQ(status(kGet), "HTTP/1.1 200 OK");
}

// As many as may be served say nothing: each is dropped after its time, and who waits is served.
TEST_F(MetricsServerTest, ThoseWhoSayNothingAreDropped) {
  std::vector<io::UnixSocket> silent;
  for (int i = 0; i < 2 * limits::kScrapers; ++i) silent.push_back(connect());
  const Instant began = clock.now();
  EXPECT_EQ(status(kGet), "HTTP/1.1 200 OK");
  EXPECT_LT(clock.now() - began, 3 * limits::kScrapePatience);
  for (io::UnixSocket& socket : silent) EXPECT_EQ(rest(socket), "");
}

TEST_F(MetricsServerTest, ManyAtOnceAreServedInTurn) {
  std::vector<std::jthread> scrapers;
  for (int i = 0; i < 50; ++i) {
    scrapers.emplace_back([this] { EXPECT_EQ(status(kGet), "HTTP/1.1 200 OK"); });
  }
  scrapers.clear();
  EXPECT_EQ(served, 50);
}

TEST_F(MetricsServerTest, StopsWhileSomebodyIsConnected) {
  const io::UnixSocket silent = connect();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Instant began = clock.now();
  server->stop();
  EXPECT_LT(clock.now() - began, 2 * limits::kScrapePatience);
}

TEST_F(MetricsServerTest, OnTheLoopbackInterface) {
  const std::uint16_t port = io::LoopbackListener::bind(0, false).value().port();  // free again
  start(fmt::format("127.0.0.1:{}", port));
  EXPECT_EQ(MetricsServer::start(fmt::format("127.0.0.1:{}", port), {}, clock).error().code,
            Code::kInvalid);
  const io::Fd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_GT(::send(fd.get(), kGet, strlen(kGet), 0), 0);
  std::array<char, 16> start_of_reply{};
  ASSERT_EQ(::recv(fd.get(), start_of_reply.data(), 15, MSG_WAITALL), 15);
  EXPECT_STREQ(start_of_reply.data(), "HTTP/1.1 200 OK");
}

}  // namespace
}  // namespace quiver::cache
