#include "io/capped_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "io/test_directory.h"

namespace quiver::io {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kCap = 10'000;

struct CappedLogTest : ::testing::Test {
  // In a process of its own, whose stderr is `stderr_file`.
  void write_lines(const std::string& stderr_file, int lines) const {
    const pid_t child = ::fork();
    if (child == 0) {
      const int fd = ::open(stderr_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(fd, STDOUT_FILENO), ::dup2(fd, STDERR_FILENO);
      CappedLog sink(LogLevel::kInfo, log, Bytes(kCap));
      for (int i = 0; i < lines; ++i) {
        quiver::log(sink, LogLevel::kInfo, "line {} {}", i, std::string(60, 'x'));
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  static std::string text(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  TestDirectory dir;
  const std::string log = dir / "quiverd.log";
};

TEST_F(CappedLogTest, TwoFilesOfABoundedLengthHaveTheLatest) {
  write_lines(log, 1000);
  write_lines(log, 1000);
  EXPECT_LT(fs::file_size(log), kCap + 200);
  EXPECT_LT(fs::file_size(log + ".1"), kCap + 200);
  EXPECT_GE(fs::file_size(log + ".1"), kCap);
  const std::string both = text(log + ".1") + text(log);
  EXPECT_NE(both.find("line 999 "), std::string::npos);
  EXPECT_NE(both.find("line 950 "), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(log).parent_path()), {}), 2);
}

TEST_F(CappedLogTest, AFileThatSomebodyElseNamedIsLeftAlone) {
  std::ofstream(log) << "of another run";
  write_lines(dir / "mine", 1000);
  EXPECT_GT(fs::file_size(dir / "mine"), 5 * kCap);
  EXPECT_EQ(text(log), "of another run");
  EXPECT_FALSE(fs::exists(log + ".1"));
}

}  // namespace
}  // namespace quiver::io
