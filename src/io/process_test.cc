#include "io/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "io/file.h"
#include "io/test_directory.h"

namespace quiver::io {
namespace {

// What the file holds once a line "done" has arrived in it, without that line.
std::string wait_for_output(const std::string& path) {
  RealFiles files;
  for (int i = 0; i < 1000; ++i) {
    auto text = read_file(files, path, Bytes(1 << 20));
    if (text && text->ends_with("done\n")) return text->substr(0, text->size() - 5);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "no output came";
}

std::string run_script(const TestDirectory& dir, const std::string& script,
                       const std::vector<std::pair<std::string, std::string>>& env = {}) {
  const auto pid = spawn_detached({"sh", "-c", script + "; echo done"}, env, dir / "out");
  EXPECT_TRUE(pid) << pid.error().message;
  return wait_for_output(dir / "out");
}

TEST(Process, BootIdIsAUuidAndStaysTheSame) {
  const std::string id = *boot_id();
  EXPECT_EQ(id.size(), 36u);
  EXPECT_EQ(std::count(id.begin(), id.end(), '-'), 4);
  EXPECT_EQ(*boot_id(), id);
}

TEST(Process, ReadsItsEnvironment) {
  ::setenv("QUIVER_PROCESS_TEST", "value", 1);
  EXPECT_EQ(environment("QUIVER_PROCESS_TEST"), "value");
  ::setenv("QUIVER_PROCESS_TEST", "", 1);
  EXPECT_EQ(environment("QUIVER_PROCESS_TEST"), "");
  ::unsetenv("QUIVER_PROCESS_TEST");
  EXPECT_EQ(environment("QUIVER_PROCESS_TEST"), std::nullopt);
}

TEST(Process, RandomBytesFillTheSpanAndDiffer) {
  std::array<std::byte, 1000> a{}, b{};
  ASSERT_TRUE(random_bytes(a));
  ASSERT_TRUE(random_bytes(b));
  EXPECT_NE(a, b);
  EXPECT_GT(std::set<std::byte>(a.begin() + 500, a.end()).size(), 100u);
}

TEST(Process, NamesAThread) {
  std::jthread([] {
    name_this_thread("a-name-that-is-too-long");
    char name[32];
    ASSERT_EQ(::pthread_getname_np(::pthread_self(), name, sizeof name), 0);
    EXPECT_STREQ(name, "a-name-that-is-");
  }).join();
}

TEST(SpawnDetached, RunsWithTheEnvironmentGivenAndNothingElse) {
  TestDirectory dir;
  ::setenv("QUIVER_SECRET", "ours", 1);
  EXPECT_EQ(run_script(dir, "echo ${QUIVER_SECRET-none} $QUIVER_NEW; pwd; echo err >&2",
                       {{"QUIVER_NEW", "given"}}),
            "none given\n/\nerr\n");
  ::unsetenv("QUIVER_SECRET");
}

TEST(SpawnDetached, IsNoChildAndHasASessionOfItsOwn) {
  TestDirectory dir;
  const auto pid = spawn_detached({"sh", "-c", "ps -o ppid=,sid= -p $$ | cat; echo done; sleep 30"},
                                  {}, dir / "out");
  ASSERT_TRUE(pid);
  int ppid = 0, sid = 0;
  std::istringstream(wait_for_output(dir / "out")) >> ppid >> sid;
  EXPECT_NE(ppid, 0);
  EXPECT_NE(ppid, ::getpid());
  EXPECT_NE(sid, ::getsid(0));
  EXPECT_EQ(::kill(*pid, SIGKILL), 0) << "the pid returned is that of the program";
}

TEST(SpawnDetached, ClosesEverythingElseAndResetsSignals) {
  TestDirectory dir;
  const int leaky = ::open("/dev/null", O_RDONLY);  // NOLINT: without O_CLOEXEC on purpose
  ASSERT_GT(leaky, 2);
  ::signal(SIGUSR1, SIG_IGN);
  std::string script;  // without pipes, which would be descriptors of the shell's own
  for (int fd = 0; fd < 100; ++fd) script += fmt::format("readlink /proc/$$/fd/{}; ", fd);
  const std::string out =
      run_script(dir, script + "grep SigIgn /proc/self/status; grep SigBlk /proc/self/status");
  ::signal(SIGUSR1, SIG_DFL);
  ::close(leaky);
  EXPECT_EQ(out, "/dev/null\n" + (dir / "out") + "\n" + (dir / "out") +
                     "\nSigIgn:\t0000000000000000\nSigBlk:\t0000000000000000\n");
}

TEST(SpawnDetached, AppendsToItsOutput) {
  TestDirectory dir;
  std::ofstream(dir / "out") << "before\n";
  EXPECT_EQ(run_script(dir, "echo after"), "before\nafter\n");
}

TEST(SpawnDetached, SaysWhatCannotBeRun) {
  TestDirectory dir;
  EXPECT_EQ(spawn_detached({"no-such-program-of-quiver"}, {}, dir / "out").error().code,
            Code::kNotFound);
  EXPECT_EQ(spawn_detached({dir / "no"}, {}, dir / "out").error().code, Code::kNotFound);
  EXPECT_EQ(spawn_detached({}, {}, dir / "out").error().code, Code::kInvalid);
  EXPECT_EQ(spawn_detached({"sh"}, {}, dir / "no/out").error().code, Code::kNotFound);
  std::ofstream(dir / "text") << "\x01 not a program";
  ASSERT_EQ(::chmod((dir / "text").c_str(), 0700), 0);
  const auto bad = spawn_detached({dir / "text"}, {}, dir / "out");
  ASSERT_FALSE(bad) << "an exec that fails must be told";
  EXPECT_NE(bad.error().message.find("text"), std::string::npos);
}

}  // namespace
}  // namespace quiver::io
