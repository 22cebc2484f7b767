#include "io/run_program.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "io/file.h"
#include "io/test_directory.h"

namespace quiver::io {
namespace {

using namespace std::chrono_literals;

Result<ProgramOutput> sh(const std::string& script, std::chrono::milliseconds timeout = 20s) {
  return run_program({"sh", "-c", script}, timeout, Bytes(100'000));
}

TEST(RunProgram, BringsItsOutputAndItsStatus) {
  const auto got = sh("echo out; echo err >&2; cat; exit 3");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->out, "out\n");
  EXPECT_EQ(got->err, "err\n");
  EXPECT_EQ(got->status, 3);
  EXPECT_EQ(sh("kill -TERM $$")->status, 128 + SIGTERM);
}

TEST(RunProgram, ArgumentsAreNoShells) {
  const auto got = run_program({"echo", "$HOME", "`id`", "a;b"}, 20s, Bytes(1000));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->out, "$HOME `id` a;b\n");
}

TEST(RunProgram, NeitherThePipeNorItsSilenceHoldsUsUp) {
  EXPECT_EQ(sh("head -c 90000 /dev/zero; head -c 90000 /dev/zero >&2")->out.size(), 90'000u);
  EXPECT_EQ(sh("head -c 200000 /dev/zero").error().code, Code::kCorrupt);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(sh("sleep 60 & sleep 60", 100ms).error().code, Code::kTimeout);
  EXPECT_EQ(sh("exec >&- 2>&-; sleep 60", 100ms).error().code, Code::kTimeout);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 20s);
}

TEST(RunProgram, WhatItStartedEndsWithIt) {
  const TestDirectory dir;
  const auto late = sh("sleep 60 & echo $! > " + (dir / "pid") + "; wait", 200ms);
  EXPECT_EQ(late.error().code, Code::kTimeout);
  EXPECT_NE(late.error().message.find("sh did not end"), std::string::npos);
  pid_t pid = 0;
  std::ifstream(dir / "pid") >> pid;
  ASSERT_GT(pid, 0);
  RealFiles files;
  for (int i = 0; i < 500; ++i) {  // until init has collected it
    const auto stat = read_file(files, "/proc/" + std::to_string(pid) + "/stat", Bytes(4096));
    if (!stat || stat->find(") Z") != std::string::npos) return;
    std::this_thread::sleep_for(10ms);
  }
  ADD_FAILURE() << "it still runs";
}

TEST(RunProgram, WhatCannotBeRunIsSaid) {
  EXPECT_EQ(run_program({"no-such-program-of-quiver"}, 1s, Bytes(1)).error().code, Code::kNotFound);
  EXPECT_EQ(run_program({"/"}, 1s, Bytes(1)).error().code, Code::kDenied);
  EXPECT_EQ(run_program({}, 1s, Bytes(1)).error().code, Code::kInvalid);
}

}  // namespace
}  // namespace quiver::io
