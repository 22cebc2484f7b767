#include "io/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "io/test_directory.h"

namespace quiver::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant in(Duration d) {
  return std::chrono::steady_clock::now() + d;
}

int open_descriptors() {
  int n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

class UnixSocketTest : public testing::Test {
 protected:
  std::pair<UnixSocket, UnixSocket> ends_ = *UnixSocket::pair();
  UnixSocket& a_ = ends_.first;
  UnixSocket& b_ = ends_.second;
  std::vector<Fd> fds_;
  std::string buffer_ = std::string(5, '-');
  MutableByteSpan buffer() { return std::as_writable_bytes(std::span(buffer_)); }
};

TEST_F(UnixSocketTest, CarriesBytesLargerThanItsBuffer) {
  const std::string sent(8 << 20, 'x');
  std::jthread sender([&] { EXPECT_TRUE(a_.send(as_bytes(sent), {}, in(seconds(20)))); });
  std::string got(sent.size(), '-');
  EXPECT_TRUE(b_.receive(std::as_writable_bytes(std::span(got)), fds_, in(seconds(20))));
  EXPECT_TRUE(got == sent);
}

TEST_F(UnixSocketTest, CarriesAsManyDescriptorsAsTheKernelAllows) {
  const Fd file(::memfd_create("x", MFD_CLOEXEC));
  struct stat mine {
  }, theirs{};
  ASSERT_EQ(::fstat(file.get(), &mine), 0);
  const std::vector<int> many(kMaxFdsPerMessage, file.get());
  ASSERT_TRUE(a_.send(as_bytes("hello"), many, in(seconds(5))));
  ASSERT_TRUE(b_.receive(buffer(), fds_, in(seconds(5))));
  EXPECT_EQ(buffer_, "hello");
  ASSERT_EQ(fds_.size(), kMaxFdsPerMessage);
  for (const Fd& fd : fds_) {
    ASSERT_EQ(::fstat(fd.get(), &theirs), 0);
    EXPECT_EQ(theirs.st_ino, mine.st_ino);
    EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  const std::vector<int> more(kMaxFdsPerMessage + 1, file.get());
  EXPECT_EQ(a_.send(as_bytes("hello"), more, in(seconds(5))).error().code, Code::kInvalid);
  EXPECT_EQ(a_.send({}, many, in(seconds(5))).error().code, Code::kInvalid);
}

TEST_F(UnixSocketTest, ClosesWhatCameOfATruncatedControlMessage) {
  const Fd file(::memfd_create("x", MFD_CLOEXEC));
  const std::vector<int> sent(20, file.get());
  ASSERT_TRUE(a_.send(as_bytes("hello"), sent, in(seconds(5))));
  const int before = open_descriptors();
  rlimit old{}, tight{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const Fd next(::dup(file.get()));
  tight = {static_cast<rlim_t>(next.get()) + 5, old.rlim_max};  // room for a few of the twenty
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  const Status got = b_.receive(buffer(), fds_, in(seconds(5)));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kNoSpace);
  EXPECT_EQ(as_text(buffer()), "hello") << "the stream goes on behind it";
  EXPECT_TRUE(fds_.empty());
  EXPECT_EQ(open_descriptors(), before + 1) << "descriptors leaked";
}

TEST_F(UnixSocketTest, RefusesMoreDescriptorsThanAMessageMayHave) {
  const Fd file(::memfd_create("x", MFD_CLOEXEC));
  const std::vector<int> some(100, file.get());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a_.send(as_bytes("x"), some, in(seconds(5))));
  std::string three(3, '-');
  const Status got = b_.receive(std::as_writable_bytes(std::span(three)), fds_, in(seconds(5)));
  EXPECT_EQ(got.error().code, Code::kInvalid);
  EXPECT_TRUE(fds_.empty());
}

TEST_F(UnixSocketTest, DeadlinesFire) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(a_.receive(buffer(), fds_, in(milliseconds(50))).error().code, Code::kTimeout);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(50));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
  EXPECT_EQ(a_.wait_readable(in(milliseconds(10))).error().code, Code::kTimeout);
  const std::string large(64 << 20, 'x');  // nobody takes it
  EXPECT_EQ(a_.send(as_bytes(large), {}, in(milliseconds(50))).error().code, Code::kTimeout);
  EXPECT_EQ(b_.receive(buffer(), fds_, Instant::min()).has_value(), true) << "it is there already";
}

TEST_F(UnixSocketTest, TellsAnEndFromAnEndInTheMiddle) {
  ASSERT_TRUE(a_.send(as_bytes("helloab"), {}, in(seconds(5))));
  { UnixSocket closing = std::move(a_); }
  EXPECT_TRUE(b_.receive(buffer(), fds_, in(seconds(5))));
  EXPECT_EQ(b_.receive(buffer(), fds_, in(seconds(5))).error().code, Code::kShort);
  EXPECT_EQ(b_.receive(buffer(), fds_, in(seconds(5))).error().code, Code::kUnavailable);
  EXPECT_EQ(b_.send(as_bytes("x"), {}, in(seconds(5))).error().code, Code::kUnavailable);
  EXPECT_TRUE(b_.wait_readable(in(seconds(5)))) << "the end can be received";
}

TEST_F(UnixSocketTest, ShutdownWakesABlockedReceiver) {
  const auto start = std::chrono::steady_clock::now();
  Status got;
  {
    std::jthread receiver([&] { got = b_.receive(buffer(), fds_, in(seconds(30))); });
    std::this_thread::sleep_for(milliseconds(50));
    b_.shutdown();
  }
  EXPECT_EQ(got.error().code, Code::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
  EXPECT_EQ(b_.send(as_bytes("x"), {}, in(seconds(5))).error().code, Code::kUnavailable);
}

TEST_F(UnixSocketTest, ShutdownWakesABlockedSender) {
  const std::string large(64 << 20, 'x');
  Status sent;
  {
    std::jthread sender([&] { sent = a_.send(as_bytes(large), {}, in(seconds(30))); });
    std::this_thread::sleep_for(milliseconds(50));
    a_.shutdown();
  }
  EXPECT_EQ(sent.error().code, Code::kUnavailable);
}

TEST_F(UnixSocketTest, ShutdownOfReadingLetsSendingGoOn) {
  b_.shutdown_reading();
  EXPECT_EQ(b_.receive(buffer(), fds_, in(seconds(5))).error().code, Code::kUnavailable);
  EXPECT_TRUE(b_.send(as_bytes("hello"), {}, in(seconds(5))));
  EXPECT_TRUE(a_.receive(buffer(), fds_, in(seconds(5))));
}

TEST_F(UnixSocketTest, KnowsWhoIsThere) {
  const PeerCredentials peer = *a_.peer();
  EXPECT_EQ(peer.uid, ::getuid());
  EXPECT_EQ(peer.gid, ::getgid());
  EXPECT_EQ(peer.pid, ::getpid());
}

class UnixListenerTest : public testing::Test {
 protected:
  TestDirectory dir_;
  std::string path_ = dir_ / "sock";
};

TEST_F(UnixListenerTest, AcceptsWhoConnects) {
  auto listener = *UnixListener::bind(path_, 0600);
  struct stat s {};
  ASSERT_EQ(::stat(path_.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 07777, 0600u);
  auto client = *UnixSocket::connect(path_, in(seconds(5)));
  auto server = *listener.accept(in(seconds(5)));
  ASSERT_TRUE(client.send(as_bytes("x"), {}, in(seconds(5))));
  std::byte b{};
  std::vector<Fd> fds;
  EXPECT_TRUE(server.receive({&b, 1}, fds, in(seconds(5))));
  EXPECT_EQ(listener.accept(in(milliseconds(20))).error().code, Code::kTimeout);
}

TEST_F(UnixListenerTest, ShutdownWakesAccept) {
  auto listener = *UnixListener::bind(path_, 0600);
  std::jthread stopper([&] {
    std::this_thread::sleep_for(milliseconds(50));
    listener.shutdown();
  });
  EXPECT_EQ(listener.accept(in(seconds(30))).error().code, Code::kUnavailable);
  EXPECT_EQ(listener.accept(in(seconds(30))).error().code, Code::kUnavailable);
}

TEST_F(UnixListenerTest, RemovesItsPathOnlyWhenItIsItsOwn) {
  { const auto listener = *UnixListener::bind(path_, 0600); }
  EXPECT_FALSE(std::filesystem::exists(path_));
  {
    const auto listener = *UnixListener::bind(path_, 0600);
    std::filesystem::rename(path_, dir_ / "moved");  // keeps its inode from being used again
    std::ofstream(path_) << "somebody else's";
  }
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(UnixListenerTest, MovesWithoutRemovingThePath) {
  auto first = *UnixListener::bind(path_, 0600);
  UnixListener second = std::move(first);
  EXPECT_TRUE(std::filesystem::exists(path_));
  second = *UnixListener::bind(dir_ / "other", 0600);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "other"));
}

TEST_F(UnixListenerTest, ReplacesWhatADeadProcessLeft) {
  {
    auto dead = *UnixListener::bind(path_, 0600);
    std::filesystem::create_hard_link(path_, dir_ / "kept");
  }
  std::filesystem::rename(dir_ / "kept", path_);
  EXPECT_EQ(UnixSocket::connect(path_, in(seconds(5))).error().code, Code::kUnreachable);
  const auto listener = UnixListener::bind(path_, 0600);
  ASSERT_TRUE(listener) << listener.error().message;
  EXPECT_TRUE(UnixSocket::connect(path_, in(seconds(5))));
}

TEST_F(UnixListenerTest, RefusesAPathThatIsTaken) {
  const auto listener = *UnixListener::bind(path_, 0600);
  EXPECT_EQ(UnixListener::bind(path_, 0600).error().code, Code::kInvalid);
  std::ofstream(dir_ / "file") << "data";
  EXPECT_EQ(UnixListener::bind(dir_ / "file", 0600).error().code, Code::kInvalid);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "file"));
  EXPECT_EQ(UnixListener::bind(dir_ / std::string(200, 'x'), 0600).error().code, Code::kInvalid);
  EXPECT_EQ(UnixListener::bind(dir_ / "no/sock", 0600).error().code, Code::kNotFound);
}

TEST_F(UnixListenerTest, ConnectSaysWhenNobodyListens) {
  EXPECT_EQ(UnixSocket::connect(path_, in(seconds(5))).error().code, Code::kUnreachable);
}

TEST_F(UnixListenerTest, ConnectTimesOutWhenTheQueueIsFull) {
  // A listener of our own with a queue of one, which nobody accepts from.
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  { const auto made = *UnixListener::bind(path_, 0600); }
  auto listener = *UnixListener::bind(path_, 0600);
  std::vector<UnixSocket> waiting;
  Result<UnixSocket> next = UnixSocket::connect(path_, in(milliseconds(20)));
  while (next && waiting.size() < 20000) {
    waiting.push_back(*std::move(next));
    next = UnixSocket::connect(path_, in(milliseconds(20)));
  }
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, Code::kTimeout) << next.error().message;
}

TEST(LoopbackListener, ServesThisMachineUntilItIsShutDown) {
  for (const bool ipv6 : {false, true}) {
    auto listener = LoopbackListener::bind(0, ipv6);
    if (!listener && ipv6) continue;  // the machine has none
    ASSERT_TRUE(listener) << listener.error().message;
    EXPECT_EQ(LoopbackListener::bind(listener->port(), ipv6).error().code, Code::kInvalid);
    const Instant now = std::chrono::steady_clock::now();
    EXPECT_EQ(listener->accept(now).error().code, Code::kTimeout);
    std::jthread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      listener->shutdown();
    });
    EXPECT_EQ(listener->accept(now + std::chrono::seconds(10)).error().code, Code::kUnavailable);
  }
}

TEST(UnixSocket, ReceivesWhatIsThereAndThenTheEnd) {
  auto [a, b] = UnixSocket::pair().value();
  const Instant soon = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  std::array<std::byte, 100> bytes;
  EXPECT_EQ(b.receive_some(bytes, std::chrono::steady_clock::now()).error().code, Code::kTimeout);
  ASSERT_TRUE(a.send(as_bytes("abc"), {}, soon));
  EXPECT_EQ(b.receive_some(bytes, soon).value(), 3u);
  a.shutdown_sending();
  EXPECT_EQ(b.receive_some(bytes, soon).value(), 0u);
  ASSERT_TRUE(b.send(as_bytes("d"), {}, soon)) << "the other way goes on";
  EXPECT_EQ(a.receive_some(bytes, soon).value(), 1u);
}

}  // namespace
}  // namespace quiver::io
