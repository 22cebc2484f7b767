#include "cache/client/cache_directory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>

#include "io/test_directory.h"

namespace quiver::cache {
namespace {

TEST(CacheDirectory, IsTheSettingElseLocalScratchNeverAHomeOrTheNetwork) {
  io::RealFiles files;
  io::TestDirectory dir;
  Settings settings;
  std::map<std::string, std::string> variables = {{"HOME", "/nowhere"}};
  const Getenv env = [&](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  };
  variables["SLURM_TMPDIR"] = dir.path();
  EXPECT_EQ(choose_cache_directory(settings, files, env).value(),
            fmt::format("{}/quiver-{}", dir.path(), ::getuid()));
  variables["HOME"] = dir.path();
  EXPECT_NE(choose_cache_directory(settings, files, env).value(),
            fmt::format("{}/quiver-{}", dir.path(), ::getuid()));
  settings.cache_dir = "/mine";
  EXPECT_EQ(choose_cache_directory(settings, files, env).value(), "/mine");
}

TEST(CacheDirectory, KnowsTheFilesystemOfAPath) {
  const std::string_view table =
      "/dev/vda / ext4 rw 0 0\nserver:/x /scratch nfs4 rw 0 0\n/dev/vdb /scratch/local xfs rw 0 "
      "0\n";
  EXPECT_EQ(filesystem_of(table, "/var/tmp"), "ext4");
  EXPECT_EQ(filesystem_of(table, "/scratch/me"), "nfs4");
  EXPECT_EQ(filesystem_of(table, "/scratch/local/me"), "xfs");
  EXPECT_EQ(filesystem_of(table, "/scratchy"), "ext4");
}

}  // namespace
}  // namespace quiver::cache
