// quiverd as a process: killed at any instant, found again, told to stop.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "cache/server/testing/daemon_fixture.h"
#include "io/process.h"

namespace quiver::cache {
namespace {

using testing::DaemonTest;
using testing::RawClient;
using testing::TestData;

class DaemonProcess : public DaemonTest {
 protected:
  DaemonProcess() : data(folder + "/data", 200, 20'000) {}
  ~DaemonProcess() override { end(SIGKILL); }

  void SetUp() override {
    if (!files.stat(program)) GTEST_SKIP() << "quiverd has not been built";
  }
  void run() {
    const auto made = io::spawn_detached({program, "--cache-dir", cache(), "--socket", socket(),
                                          "--disk-limit", "64MB", "--fetch-concurrency", "4"},
                                         {}, folder + "/log");
    ASSERT_TRUE(made) << made.error().message;
    pid = *made;
  }
  void end(int signal) {
    if (pid == 0) return;
    ::kill(pid, signal);
    EXPECT_TRUE(eventually([&] { return !running(); }));
    pid = 0;
  }
  // It is not our child, so a zombie has ended too; but a zombie with threads has not: they hold
  // its socket and its lock until the last of them is gone.
  bool running() {
    const std::string process = "/proc/" + std::to_string(pid);
    const auto status = io::read_file(files, process + "/stat", 4_KiB);
    if (!status) return false;
    const auto threads = files.list(process + "/task");
    return status->find(") Z") == std::string::npos || (threads && threads->size() > 1);
  }

  const std::string program = std::string(QUIVER_BINARY_DIR) + "/quiverd";
  TestData data;
  pid_t pid = 0;
};

TEST_F(DaemonProcess, KilledAtAnyInstantItFindsAgainWhatWasWhole) {
  std::uint32_t here = 0;
  for (int round = 0; round < 4; ++round) {
    run();
    RawClient client(socket());
    ASSERT_TRUE(client.hello) << client.hello.error().message;
    ASSERT_TRUE(client.open(data));
    std::uint32_t found = 0;
    for (std::uint32_t i = 0; i < 200; ++i) {
      const std::string bytes = client.read(i, data.contents[i].size());
      if (bytes.empty()) continue;
      EXPECT_TRUE(bytes == data.contents[i]);
      ++found;
    }
    EXPECT_GE(found, here) << "round " << round;
    std::vector<std::uint32_t> more;
    for (std::uint32_t i = 0; i < 50; ++i)
      more.push_back(static_cast<std::uint32_t>(round) * 50 + i);
    ASSERT_TRUE(client.fetch({more[0], more[1]}));
    ASSERT_TRUE(client.fetch(more, 0));  // in the middle of these
    here = found + 2;
    end(SIGKILL);
  }
}

TEST_F(DaemonProcess, ASecondOneIsNotNeededAndASignalStopsTheFirst) {
  run();
  RawClient client(socket());
  ASSERT_TRUE(client.hello);
  const std::string second = program + " --cache-dir " + cache() + " --socket " + folder +
                             "/second 2>" + folder + "/second.log";
  EXPECT_EQ(WEXITSTATUS(std::system(second.c_str())), 0);
  const auto line = io::read_file(files, folder + "/second.log", 4_KiB);
  ASSERT_TRUE(line);
  EXPECT_EQ(std::count(line->begin(), line->end(), '\n'), 1) << *line;
  end(SIGTERM);
}

TEST_F(DaemonProcess, WarmTellsTheTruthInItsStatus) {
  const std::string quiver = std::string(QUIVER_BINARY_DIR) + "/quiver";
  if (!files.stat(quiver)) GTEST_SKIP() << "quiver has not been built";
  std::ofstream(folder + "/data.qvm", std::ios::binary) << data.file;
  const auto warm = [&](const std::string& limit, const std::string& flags) {
    const std::string command = "QUIVER_CACHE_DIR=" + cache() + limit +
                                " QUIVER_DISK_LIMIT=" + limit + " QUIVER_IDLE_TIMEOUT=1s " +
                                quiver + " warm " + folder + "/data.qvm " + flags + " >" + folder +
                                "/out 2>&1";
    const int status = WEXITSTATUS(std::system(command.c_str()));
    const auto out = io::read_file(files, folder + "/out", 64_KiB);
    return std::pair(status, out.value_or(""));
  };
  const auto all = warm("64MB", "--verify");
  EXPECT_EQ(all.first, 0) << all.second;
  EXPECT_NE(all.second.find("200 items of"), std::string::npos) << all.second;
  const auto part = warm("2MB", "");
  EXPECT_EQ(part.first, 0) << part.second;
  const auto too_few = warm("2MB", "--verify --json");
  EXPECT_EQ(too_few.first, 12) << too_few.second;
  EXPECT_NE(too_few.second.find("not in the cache"), std::string::npos) << too_few.second;
  std::filesystem::remove_all(folder + "/data");
  const auto nothing = warm("63MB", "");
  EXPECT_EQ(nothing.first, 15) << nothing.second;
  EXPECT_NE(nothing.second.find("200 items did not come"), std::string::npos) << nothing.second;
}

TEST_F(DaemonProcess, BadInputIsOneSentenceAndAStatus) {
  const std::string log = folder + "/bad.log";
  const auto status = [&](const std::string& arguments) {
    return WEXITSTATUS(std::system((program + " " + arguments + " 2>" + log).c_str()));
  };
  EXPECT_EQ(status("--cache-dir " + cache()), 2);
  EXPECT_EQ(status("--cache-dir " + cache() + " --socket s --disk-limt 4GB"), 2);
  const auto line = io::read_file(files, log, 4_KiB);
  ASSERT_TRUE(line);
  EXPECT_NE(line->find("disk_limit"), std::string::npos) << *line;
  EXPECT_EQ(status("--cache-dir " + cache() + " --socket s --disk-limit much"), 2);
}

}  // namespace
}  // namespace quiver::cache
