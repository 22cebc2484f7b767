// For tests: a directory of one's own that is gone afterwards.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/check.h"

namespace quiver::io {

class TestDirectory {
 public:
  TestDirectory() : path_(std::filesystem::temp_directory_path() / "quiver-test-XXXXXX") {
    CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace quiver::io
