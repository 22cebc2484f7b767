#include "io/memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace quiver::io {
namespace {

constexpr std::size_t kSize = 8192;

// What a client could try with a descriptor that it was given. Returns what it got away with.
std::string attack(int fd) {
  std::string achieved;
  const auto map = [&](int f, const char* what) {
    void* p = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    if (p != MAP_FAILED) achieved += what, ::munmap(p, kSize);
  };
  map(fd, "map ");
  void* read_only = ::mmap(nullptr, kSize, PROT_READ, MAP_SHARED, fd, 0);
  if (read_only == MAP_FAILED) return "could not even read";
  if (::mprotect(read_only, kSize, PROT_READ | PROT_WRITE) == 0) achieved += "mprotect ";
  ::munmap(read_only, kSize);
  if (::pwrite(fd, "x", 1, 0) >= 0) achieved += "write ";
  if (::ftruncate(fd, 0) == 0) achieved += "truncate ";
  if (::ftruncate(fd, 2 * kSize) == 0) achieved += "grow ";
  if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
    achieved += "punch ";
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0) achieved += "seal ";
  const Fd again(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDWR | O_CLOEXEC));
  if (again.valid()) {
    // Mode 0 does not stop root, but the seals do.
    if (::geteuid() != 0) achieved += "reopen ";
    map(again.get(), "map-reopened ");
    if (::pwrite(again.get(), "x", 1, 0) >= 0) achieved += "write-reopened ";
    if (::ftruncate(again.get(), 0) == 0) achieved += "truncate-reopened ";
  }
  return achieved;
}

// Runs f in another process, of another user when we are root; returns its exit status.
template <class F>
int in_child(F f) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(99);
    ::_exit(f());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(PublishedMemory, ReadersSeeWhatTheWriterWrites) {
  auto memory = *publish_memory("view", kSize);
  const auto reader = *Mapping::map(memory.readers.get(), kSize, false);
  std::memcpy(memory.writer.data() + 100, "hello", 5);
  EXPECT_EQ(std::memcmp(reader.data() + 100, "hello", 5), 0);
  EXPECT_EQ(memory.writer.size(), kSize);
}

TEST(PublishedMemory, ReadersCanOnlyRead) {
  const auto memory = *publish_memory("view", kSize);
  EXPECT_EQ(attack(memory.readers.get()), "");
  const int seals = ::fcntl(memory.readers.get(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  struct stat s {};
  ASSERT_EQ(::fstat(memory.readers.get(), &s), 0);
  EXPECT_EQ(s.st_mode & 07777, 0u);
  EXPECT_GE(s.st_blocks * 512, static_cast<blkcnt_t>(kSize)) << "must be allocated when made";
}

TEST(PublishedMemory, AnotherUserCannotReopenItForWriting) {
  const auto memory = *publish_memory("view", kSize);
  const int fd = memory.readers.get();
  EXPECT_EQ(in_child([&] {
              const int again = ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDWR);
              return again < 0 && errno == EACCES ? 0 : 1;
            }),
            0);
  EXPECT_EQ(in_child([&] { return attack(fd).empty() ? 0 : 1; }), 0);
}

TEST(PublishedMemory, TheAttackWorksOnWhatIsNotSealed) {
  const Fd open(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), kSize), 0);
  EXPECT_NE(attack(open.get()).find("map "), std::string::npos);
}

TEST(SealedCopy, IsImmutableAndMapsReadOnly) {
  std::string data(kSize, 'm');
  data.back() = 'z';
  const Fd fd = *make_sealed_copy("manifest", as_bytes(data));
  EXPECT_EQ(attack(fd.get()), "");
  const auto mapping = *Mapping::map(fd.get(), kSize, false);
  EXPECT_EQ(as_text(ByteSpan(mapping.data(), mapping.size())), data);
  EXPECT_TRUE(make_sealed_copy("empty", {}));
}

TEST(ClientMemory, IsWritableButKeepsItsSize) {
  const Fd fd = *make_client_memory("taken", kSize);
  struct stat s {};
  ASSERT_EQ(::fstat(fd.get(), &s), 0);
  EXPECT_EQ(s.st_size, static_cast<off_t>(kSize));
  EXPECT_GE(s.st_blocks * 512, static_cast<blkcnt_t>(kSize));
  EXPECT_EQ(attack(fd.get()).find("truncate"), std::string::npos);
  EXPECT_EQ(attack(fd.get()).find("grow"), std::string::npos);
  EXPECT_EQ(attack(fd.get()).find("seal"), std::string::npos);
  const auto mapping = *Mapping::map(fd.get(), kSize, true);
  mapping.data()[7] = std::byte{42};
  RealFiles files;
  std::byte b{};
  EXPECT_EQ(*files.pread(fd.get(), {&b, 1}, 7), 1u);
  EXPECT_EQ(b, std::byte{42});
}

TEST(Mapping, RefusesMoreThanTheFileHas) {
  const Fd fd = *make_client_memory("m", kSize);
  EXPECT_EQ(Mapping::map(fd.get(), kSize + 1, false).error().code, Code::kInvalid);
  EXPECT_EQ(Mapping::map(fd.get(), 0, false).error().code, Code::kInvalid);
  EXPECT_FALSE(Mapping::map(-1, kSize, false));
}

TEST(Mapping, MovesItsMemory) {
  const Fd fd = *make_client_memory("m", kSize);
  Mapping a = *Mapping::map(fd.get(), kSize, true);
  std::byte* data = a.data();
  Mapping b(std::move(a));
  EXPECT_FALSE(a);
  EXPECT_EQ(b.data(), data);
  a = std::move(b);
  EXPECT_EQ(a.data(), data);
  EXPECT_FALSE(b);
  data[0] = std::byte{1};
}

class FutexTest : public testing::Test {
 protected:
  PublishedMemory memory_ = *publish_memory("clock", 4096);
  Mapping reader_ = *Mapping::map(memory_.readers.get(), 4096, false);
  std::uint32_t* word() { return reinterpret_cast<std::uint32_t*>(memory_.writer.data()); }
  const std::uint32_t* seen() { return reinterpret_cast<const std::uint32_t*>(reader_.data()); }
};

TEST_F(FutexTest, TimesOut) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(futex_wait(seen(), 0, 30'000'000));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
  EXPECT_FALSE(futex_wait(seen(), 0, -1));
}

TEST_F(FutexTest, ReturnsAtOnceWhenTheWordDiffers) {
  EXPECT_TRUE(futex_wait(seen(), 1, 60'000'000'000));
}

TEST_F(FutexTest, WakesAnotherProcessThatMayOnlyRead) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const int fd = memory_.readers.get();
  const pid_t pid = ::fork();
  if (pid == 0) {
    // Its own mapping, so that nothing but the memory itself ties the two together.
    const void* p = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED || ::write(ready[1], "r", 1) != 1) ::_exit(2);
    const auto start = std::chrono::steady_clock::now();
    const bool woken = futex_wait(static_cast<const std::uint32_t*>(p), 0, 20'000'000'000);
    const bool waited = std::chrono::steady_clock::now() - start > std::chrono::milliseconds(10);
    ::_exit(woken && waited ? 0 : 1);
  }
  char c;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto start = std::chrono::steady_clock::now();
  __atomic_store_n(word(), 1, __ATOMIC_RELEASE);
  futex_wake_all(word());
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace quiver::io
