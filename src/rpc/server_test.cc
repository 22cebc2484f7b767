#include "rpc/server.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <latch>

#include "io/test_directory.h"
#include "rpc/wire.h"

namespace quiver::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint16_t kEcho = 1, kFail = 2, kCount = 3, kWait = 4, kFd = 5, kHuge = 6, kHold = 7;

Instant soon() {
  return std::chrono::steady_clock::now() + seconds(20);
}

// Waits for what another thread will do soon.
template <class F>
bool eventually(F f) {
  for (int i = 0; i < 1000 && !f(); ++i) std::this_thread::sleep_for(milliseconds(10));
  return f();
}

class Lines final : public LogSink {
 public:
  void write(LogLevel, std::string_view line) override {
    all_.with([&](std::string& s) { s.append(line).append("\n"); });
  }
  std::string all() const {
    return all_.with([](const std::string& s) { return s; });
  }

 private:
  Guarded<std::string> all_;
};

class ServerTest : public testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    auto listener = io::UnixListener::bind(path_, 0600);
    ASSERT_TRUE(listener) << listener.error().message;
    server_ = std::make_unique<Server>(
        *std::move(listener), std::move(options), clock_, log_,
        [this](Peer& peer, const Message& m) { return handle(peer, m); },
        [this](Peer& peer) {
          EXPECT_EQ(peer.session.has_value(), peer.session.type() == typeid(int));
          ++closed_;
        });
  }

  Result<Reply> handle(Peer& peer, const Message& m) {
    switch (m.type) {
      case kEcho:
        return Reply{m.payload, {}};
      case kFail:
        return error(Code::kDenied, "no {}", m.payload);
      case kCount: {
        if (!peer.session.has_value()) peer.session = 0;
        const int n = ++std::any_cast<int&>(peer.session);
        return Reply{Writer().i32(n).u64(peer.number).u32(peer.credentials.uid).take(), {}};
      }
      case kWait: {
        waiting_.store(true);
        while (!peer.stop.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
        return Reply{"stopped", {}};
      }
      case kHold: {
        most_held_ = std::max(most_held_.load(), ++held_);
        std::this_thread::sleep_for(milliseconds(20));
        --held_;
        return Reply{};
      }
      case kFd: {
        Reply reply{std::to_string(m.fds.size()), {}};
        reply.fds.emplace_back(::memfd_create("reply", MFD_CLOEXEC));
        return reply;
      }
      default:
        return Reply{std::string((1 << 20) + 1, 'x'), {}};
    }
  }

  std::unique_ptr<Connection> connect() {
    auto c = Connection::connect(path_, soon());
    EXPECT_TRUE(c) << c.error().message;
    return *std::move(c);
  }

  io::TestDirectory dir_;
  std::string path_ = dir_ / "sock";
  RealClock clock_;
  Lines log_;
  std::atomic<int> held_ = 0, most_held_ = 0;  // of kHold
  std::atomic<int> closed_ = 0;
  std::atomic<bool> waiting_ = false;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, AnswersRequests) {
  start();
  auto c = connect();
  EXPECT_EQ(c->call(kEcho, "hello", {}, soon())->payload, "hello");
  const auto failed = c->call(kFail, "way", {}, soon());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kDenied);
  EXPECT_EQ(failed.error().message, "no way");
  EXPECT_EQ(c->call(kEcho, "again", {}, soon())->payload, "again");
}

TEST_F(ServerTest, PassesDescriptorsBothWays) {
  start();
  auto c = connect();
  const io::Fd file(::memfd_create("x", MFD_CLOEXEC));
  const auto reply = c->call(kFd, "", std::vector(7, file.get()), soon());
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->payload, "7");
  EXPECT_EQ(reply->fds.size(), 1u);
}

TEST_F(ServerTest, EachPeerHasASessionOfItsOwn) {
  start();
  auto a = connect(), b = connect();
  const auto count = [](Connection& c) {
    const Message m = *c.call(kCount, "", {}, soon());
    Reader r(m.payload);
    const int n = *r.i32();
    const std::uint64_t number = *r.u64();
    EXPECT_EQ(*r.u32(), ::getuid());
    return std::pair(n, number);
  };
  const auto [a1, number_a] = count(*a);
  const auto [b1, number_b] = count(*b);
  EXPECT_EQ(a1, 1);
  EXPECT_EQ(b1, 1);
  EXPECT_NE(number_a, number_b);
  EXPECT_EQ(count(*a), std::pair(2, number_a));
  a.reset();
  EXPECT_TRUE(eventually([&] { return closed_ == 1 && server_->connections() == 1; }));
  EXPECT_EQ(count(*b).first, 2);
}

TEST_F(ServerTest, RefusesOneConnectionTooManyByName) {
  start({.max_connections = 2});
  auto a = connect(), b = connect();
  EXPECT_TRUE(a->call(kEcho, "", {}, soon()));
  EXPECT_TRUE(b->call(kEcho, "", {}, soon()));
  for (int i = 0; i < 20; ++i) {  // the refusal may come before the request or after it
    auto c = connect();
    const auto refused = c->call(kEcho, "", {}, soon());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kNoSpace) << refused.error().message;
    EXPECT_NE(refused.error().message.find("max_connections = 2"), std::string::npos);
  }
  a.reset();
  EXPECT_TRUE(eventually([&] { return server_->connections() == 1; }));
  EXPECT_TRUE(connect()->call(kEcho, "", {}, soon()));
}

TEST_F(ServerTest, AMalformedFrameEndsOnlyItsConnection) {
  start();
  auto good = connect();
  auto bad = *io::UnixSocket::connect(path_, soon());
  ASSERT_TRUE(bad.send(as_bytes("GET / HTTP/1.1\r\nHost: nobody\r\n\r\n"), {}, soon()));
  std::byte b{};
  std::vector<io::Fd> fds;
  EXPECT_EQ(bad.receive({&b, 1}, fds, soon()).error().code, Code::kUnavailable);
  EXPECT_TRUE(good->call(kEcho, "", {}, soon()));
  EXPECT_TRUE(eventually([&] { return closed_ == 1; }));
  EXPECT_NE(log_.all().find("QVR1"), std::string::npos) << log_.all();
}

TEST_F(ServerTest, APeerThatStallsInAFrameIsDropped) {
  start({.frame_timeout = milliseconds(50)});
  auto idle = connect();
  auto bad = *io::UnixSocket::connect(path_, soon());
  ASSERT_TRUE(bad.send(as_bytes("QV"), {}, soon()));
  std::byte b{};
  std::vector<io::Fd> fds;
  EXPECT_EQ(bad.receive({&b, 1}, fds, soon()).error().code, Code::kUnavailable);
  EXPECT_TRUE(idle->call(kEcho, "", {}, soon())) << "idling between frames is no stall";
}

TEST_F(ServerTest, APeerThatDoesNotTakeItsReplyIsDropped) {
  start({.payload_limit = 16_MiB, .frame_timeout = seconds(1)});
  auto c = connect();
  const std::string large(8 << 20, 'x');
  ASSERT_TRUE(c->send(kEcho, 0, 1, as_bytes(large), {}, soon()));
  EXPECT_TRUE(eventually([&] { return closed_ == 1; }));
}

TEST_F(ServerTest, AReplyAboveTheLimitBecomesAnError) {
  start({.payload_limit = 1_MiB});
  auto c = connect();
  EXPECT_EQ(c->call(kHuge, "", {}, soon()).error().code, Code::kInvalid);
  EXPECT_TRUE(c->call(kEcho, "", {}, soon()));
}

TEST_F(ServerTest, StopAnswersWhatIsBeingHandledAndClosesTheRest) {
  start();
  auto idle = connect(), busy = connect();
  EXPECT_TRUE(idle->call(kEcho, "", {}, soon()));
  Result<Message> reply = Message{};
  std::jthread caller([&] { reply = busy->call(kWait, "", {}, soon()); });
  ASSERT_TRUE(eventually([&] { return waiting_.load(); }));
  server_->stop();
  caller.join();
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->payload, "stopped");
  EXPECT_EQ(closed_, 2);
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_EQ(idle->call(kEcho, "", {}, soon()).error().code, Code::kUnavailable);
  server_->stop();
  server_.reset();
  EXPECT_EQ(Connection::connect(path_, soon()).error().code, Code::kUnreachable);
}

TEST_F(ServerTest, ServesManyAtOnce) {
  start({.max_connections = 16});
  constexpr int kClients = 12, kCalls = 100;
  std::atomic<int> good = 0;
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&, i] {
        for (int j = 0; j < kCalls; ++j) {
          auto c = Connection::connect(path_, soon());
          const std::string text = fmt::format("{}-{}", i, j);
          // A connection that has just been closed may still count: then try again.
          const auto reply = c ? (*c)->call(kEcho, text, {}, soon()) : Result<Message>(c.error());
          if (reply && reply->payload == text) ++good;
          if (!reply && reply.error().code == Code::kNoSpace) --j;
        }
      });
    }
  }
  EXPECT_EQ(good, kClients * kCalls);
  EXPECT_TRUE(eventually([&] { return server_->connections() == 0; }));
  EXPECT_GE(closed_, kClients * kCalls);
}

TEST_F(ServerTest, StopsWhileClientsComeAndGo) {
  for (int round = 0; round < 5; ++round) {
    start();
    std::vector<std::jthread> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([&](std::stop_token stop) {
        while (!stop.stop_requested()) {
          auto c = Connection::connect(path_, soon());
          if (c) static_cast<void>((*c)->call(kEcho, "x", {}, soon()));
        }
      });
    }
    std::this_thread::sleep_for(milliseconds(30));
    server_->stop();
    server_.reset();
    clients.clear();
  }
}

// However many send, only so much is in memory: the others wait, and none is refused.
TEST_F(ServerTest, LargePayloadsWaitForOneAnother) {
  ServerOptions options;
  options.payload_memory = 1_MiB;
  start(options);
  const auto send_from_eight = [&](std::size_t size) {
    most_held_ = 0;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        const auto connection = connect();
        const std::string payload(size, 'x');
        for (int i = 0; i < 4; ++i) EXPECT_TRUE(connection->call(kHold, payload, {}, soon()));
      });
    }
    threads.clear();
    return most_held_.load();
  };
  EXPECT_LE(send_from_eight(400 << 10), 2);
  EXPECT_EQ(send_from_eight(3 << 20), 1) << "one that is larger comes alone";
  EXPECT_GT(send_from_eight(1000), 3) << "small ones are not held up";
}

}  // namespace
}  // namespace quiver::rpc
