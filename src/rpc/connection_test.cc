#include "rpc/connection.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <thread>

#include "rpc/wire.h"

namespace quiver::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant in(Duration d) {
  return std::chrono::steady_clock::now() + d;
}
Instant soon() {
  return in(seconds(20));
}

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() : ConnectionTest(*io::UnixSocket::pair()) {}
  explicit ConnectionTest(std::pair<io::UnixSocket, io::UnixSocket> ends)
      : raw_(dup(ends.first)),
        client_(std::move(ends.first)),
        server_(std::move(ends.second), 4_MiB) {}

  static io::UnixSocket dup(const io::UnixSocket& s) {
    return io::UnixSocket(io::Fd(::dup(s.get())));
  }
  void send_raw(ByteSpan bytes, std::span<const int> fds = {}) {
    ASSERT_TRUE(raw_.send(bytes, fds, soon()));
  }

  io::UnixSocket raw_;  // the client's end, past the framing
  Connection client_, server_;
};

TEST_F(ConnectionTest, CarriesMessages) {
  for (const std::size_t size : {0u, 1u, 16384u, 16385u, 3u << 20}) {
    Message sent{.type = 3, .flags = 0x100, .id = 77, .payload = std::string(size, 'p'), .fds = {}};
    sent.fds.emplace_back(::memfd_create("x", MFD_CLOEXEC));
    std::jthread sender([&] { EXPECT_TRUE(client_.send(sent, soon())); });
    const auto got = server_.receive(soon());
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->type, 3);
    EXPECT_EQ(got->flags, 0x100);
    EXPECT_EQ(got->id, 77u);
    EXPECT_TRUE(got->payload == sent.payload);
    ASSERT_EQ(got->fds.size(), 1u);
    struct stat a {
    }, b{};
    ASSERT_EQ(::fstat(sent.fds[0].get(), &a), 0);
    ASSERT_EQ(::fstat(got->fds[0].get(), &b), 0);
    EXPECT_EQ(a.st_ino, b.st_ino);
  }
}

TEST_F(ConnectionTest, RefusesTooManyDescriptorsAndTooLongPayloadsUnsent) {
  const io::Fd file(::memfd_create("x", MFD_CLOEXEC));
  const std::vector<int> fds(io::kMaxFdsPerMessage + 1, file.get());
  EXPECT_EQ(server_.send(1, 0, 1, {}, fds, soon()).error().code, Code::kInvalid);
  const std::string large((4 << 20) + 1, 'x');
  EXPECT_EQ(server_.send(1, 0, 1, as_bytes(large), {}, soon()).error().code, Code::kInvalid);
  EXPECT_FALSE(server_.broken());
  ASSERT_TRUE(server_.send(1, 0, 1, {}, std::span(fds).first(io::kMaxFdsPerMessage), soon()));
  EXPECT_EQ(client_.receive(soon())->fds.size(), io::kMaxFdsPerMessage);
}

TEST_F(ConnectionTest, CallReturnsTheReplyOfItsRequest) {
  std::jthread server([&] {
    for (int i = 0; i < 3; ++i) {
      Message m = *server_.receive(soon());
      m.payload += "!";
      EXPECT_TRUE(server_.send(m, soon()));
    }
  });
  const io::Fd file(::memfd_create("x", MFD_CLOEXEC));
  std::uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const auto reply = client_.call(5, "hi", std::vector{file.get()}, soon());
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->payload, "hi!");
    EXPECT_EQ(reply->type, 5);
    EXPECT_EQ(reply->fds.size(), 1u);
    EXPECT_GT(reply->id, last) << "ids are fresh";
    last = reply->id;
  }
}

TEST_F(ConnectionTest, AnErrorReplyIsTheErrorAndBreaksNothing) {
  std::jthread server([&] {
    for (int i = 0; i < 2; ++i) {
      const Message m = *server_.receive(soon());
      const std::string why = encode_error({Code::kNotFound, "no such item"});
      EXPECT_TRUE(server_.send(m.type, kFlagError, m.id, as_bytes(why), {}, soon()));
    }
  });
  for (int i = 0; i < 2; ++i) {
    const auto reply = client_.call(5, "hi", {}, soon());
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().code, Code::kNotFound);
    EXPECT_EQ(reply.error().message, "no such item");
  }
  EXPECT_FALSE(client_.broken());
}

TEST_F(ConnectionTest, AReplyToAnotherRequestBreaksTheConnection) {
  ASSERT_TRUE(server_.send(5, 0, 99, {}, {}, soon()));
  EXPECT_EQ(client_.call(5, "hi", {}, soon()).error().code, Code::kCorrupt);
  EXPECT_TRUE(client_.broken());
  EXPECT_EQ(client_.call(5, "hi", {}, soon()).error().code, Code::kUnavailable);
}

TEST_F(ConnectionTest, DeadlinesFireAndBreakTheConnection) {
  EXPECT_EQ(client_.wait(in(milliseconds(20))).error().code, Code::kTimeout);
  EXPECT_FALSE(client_.broken()) << "nothing was lost";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(client_.call(5, "hi", {}, in(milliseconds(30))).error().code, Code::kTimeout);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(30));
  EXPECT_TRUE(client_.broken()) << "a late reply must not be taken for the next one";
  EXPECT_EQ(client_.wait(soon()).error().code, Code::kUnavailable);
}

TEST_F(ConnectionTest, ShutdownWakesACall) {
  Result<Message> reply = Message{};
  {
    std::jthread caller([&] { reply = client_.call(5, "hi", {}, soon()); });
    std::this_thread::sleep_for(milliseconds(50));
    client_.shutdown();
  }
  EXPECT_EQ(reply.error().code, Code::kUnavailable);
}

TEST_F(ConnectionTest, AFrameThatEndsEarlyIsShort) {
  const auto head = encode_header({.type = 1, .id = 1, .payload_size = 3u << 20});
  send_raw(head);
  raw_.shutdown();
  EXPECT_EQ(server_.receive(soon()).error().code, Code::kShort);
  EXPECT_TRUE(server_.broken());
}

TEST_F(ConnectionTest, AFrameThatStallsTimesOut) {
  const auto head = encode_header({.type = 1, .id = 1, .payload_size = 100});
  send_raw(ByteSpan(head).first(10));
  EXPECT_TRUE(server_.wait(soon()));
  EXPECT_EQ(server_.receive(in(milliseconds(30))).error().code, Code::kTimeout);
}

TEST_F(ConnectionTest, WrongNumbersOfDescriptorsAreCorrupt) {
  const io::Fd file(::memfd_create("x", MFD_CLOEXEC));
  const auto none = encode_header({.type = 1, .id = 1});
  send_raw(none, std::vector{file.get()});
  EXPECT_EQ(server_.receive(soon()).error().code, Code::kCorrupt);
}

TEST_F(ConnectionTest, DescriptorsInsideAPayloadAreCorrupt) {
  const io::Fd file(::memfd_create("x", MFD_CLOEXEC));
  send_raw(encode_header({.type = 1, .id = 1, .payload_size = 2}));
  send_raw(as_bytes("ab"), std::vector{file.get()});
  EXPECT_EQ(server_.receive(soon()).error().code, Code::kCorrupt);
}

TEST_F(ConnectionTest, MissingDescriptorsAreCorrupt) {
  send_raw(encode_header({.type = 1, .id = 1, .fd_count = 1}));
  EXPECT_EQ(server_.receive(soon()).error().code, Code::kCorrupt);
}

TEST_F(ConnectionTest, GarbageIsAnotherVersion) {
  send_raw(as_bytes("GET / HTTP/1.1\r\nHost: nobody\r\n\r\n"));
  EXPECT_EQ(server_.receive(soon()).error().code, Code::kVersion);
}

TEST_F(ConnectionTest, AFrameAboveTheLimitIsRefusedByItsHeader) {
  send_raw(encode_header({.type = 1, .id = 1, .payload_size = (4u << 20) + 1}));
  EXPECT_EQ(server_.receive(soon()).error().code, Code::kCorrupt);
}

TEST(ConnectionDeathTest, TwoThreadsAtOnceAreABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto ends = *io::UnixSocket::pair();
        Connection connection(std::move(ends.first));
        std::jthread other([&] { static_cast<void>(connection.wait(soon())); });
        std::this_thread::sleep_for(milliseconds(100));
        static_cast<void>(connection.send(1, 0, 1, {}, {}, soon()));
      },
      "in_use_");
}

}  // namespace
}  // namespace quiver::rpc
