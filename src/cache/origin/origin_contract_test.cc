#include "cache/origin/origin_contract.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "cache/origin/memory_origin.h"
#include "cache/origin/testing/fake_objects.h"

namespace quiver::cache::testing {
namespace {

namespace fs = std::filesystem;

class MemoryWorld final : public OriginWorld {
 public:
  Origin& origin() override { return origin_; }
  void put(const std::string& key, const std::string& bytes) override { origin_.put(key, bytes); }
  void remove(const std::string& key) override { origin_.remove(key); }
  bool can_hold(const std::string&) const override { return true; }

 private:
  MemoryOrigin origin_;
};

// What an origin of any kind is opened with.
struct Surroundings {
  io::RealFiles files;
  std::unique_ptr<io::HttpTransport> http = io::make_curl_transport(16);
  RealClock clock;

  std::unique_ptr<Origin> open(OriginSettings settings) {
    auto origin = open_origin(settings, {files, *http, clock, 1});
    EXPECT_TRUE(origin) << origin.error().message;
    return origin ? *std::move(origin) : nullptr;
  }
};

class DirectoryWorld final : public OriginWorld {
 public:
  DirectoryWorld() {
    std::string name = (fs::temp_directory_path() / "quiver-origin-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    fs::create_directory(folder_ / "root");
    origin_ = around_.open({.url = "file://" + (folder_ / "root").string()});
  }
  ~DirectoryWorld() override { fs::remove_all(folder_); }
  Origin& origin() override { return *origin_; }
  void put(const std::string& key, const std::string& bytes) override {
    const fs::path path = folder_ / "root" / key, temporary = folder_ / "new";
    fs::create_directories(path.parent_path());
    std::ofstream(temporary, std::ios::binary) << bytes;
    const timespec time{1'000'000'000 + ++puts_, 0};  // files made in one tick look alike
    const timespec times[] = {time, time};
    CHECK(utimensat(AT_FDCWD, temporary.c_str(), times, 0) == 0);
    fs::rename(temporary, path);
  }
  void remove(const std::string& key) override { fs::remove(folder_ / "root" / key); }
  bool can_hold(const std::string& key) const override {
    static const std::set<std::string> kNoName = {"a//b", "/lead", "x/", ".", "a/../b"};
    return !kNoName.contains(key);
  }

 private:
  Surroundings around_;
  fs::path folder_;
  std::atomic<int> puts_ = 0;
  std::unique_ptr<Origin> origin_;
};

class FakeWorld final : public OriginWorld {
 public:
  explicit FakeWorld(bool s3)
      : server_([this, s3](const ScriptedRequest& r) {
          return s3 ? objects_.s3(r) : objects_.web(r);
        }) {
    OriginSettings settings;
    settings.url = s3 ? "s3://b" : server_.url() + "/base/";
    if (s3) settings.endpoint = server_.url();
    if (s3) settings.access_key = settings.secret_key = "test";
    origin_ = around_.open(settings);
  }
  Origin& origin() override { return *origin_; }
  void put(const std::string& key, const std::string& bytes) override { objects_.put(key, bytes); }
  void remove(const std::string& key) override { objects_.remove(key); }
  bool can_hold(const std::string&) const override { return true; }

 private:
  Surroundings around_;
  FakeObjects objects_;
  io::testing::ScriptedHttp server_;
  std::unique_ptr<Origin> origin_;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// A real store, named by the environment (tools/seaweed). Each world has a prefix of its own.
class RealS3World final : public OriginWorld {
 public:
  RealS3World() {
    static std::atomic<int> worlds = 0;
    bucket_ = variable("QUIVER_TEST_S3_BUCKET");
    prefix_ = fmt::format("contract-{}-{}/", getpid(), ++worlds);
    send("PUT", "");
    origin_ = around_.open({.url = "s3://" + bucket_ + "/" + prefix_,
                            .endpoint = variable("QUIVER_TEST_S3"),
                            .access_key = variable("QUIVER_TEST_S3_KEY"),
                            .secret_key = variable("QUIVER_TEST_S3_SECRET")});
  }
  ~RealS3World() override {
    for (const auto& key : keys_) send("DELETE", prefix_ + key);
  }
  Origin& origin() override { return *origin_; }
  void put(const std::string& key, const std::string& bytes) override {
    keys_.insert(key);
    const int status = send("PUT", prefix_ + key, bytes);
    EXPECT_EQ(status, 200) << key;
  }
  void remove(const std::string& key) override {
    EXPECT_EQ(send("DELETE", prefix_ + key), 204) << key;
  }
  // SeaweedFS keeps objects as files of a tree: what no path can be, it does not hold; a backslash
  // becomes a slash there, and a folder has no bytes. The prefix counts towards S3's limit of 1024
  // bytes.
  bool can_hold(const std::string& key) const override {
    static const std::set<std::string> kNoPath = {"a//b", "/lead",  "x/",
                                                  ".",    "a/../b", "back\\slash"};
    return !kNoPath.contains(key) && prefix_.size() + key.size() <= 1024;
  }

 private:
  int send(const std::string& method, const std::string& whole_key, const std::string& body = {}) {
    io::HttpRequest request;
    request.method = method;
    request.url = variable("QUIVER_TEST_S3") + "/" + bucket_ + "/" + encode_path(whole_key);
    request.body = body;
    request.sign = io::SigV4{variable("QUIVER_TEST_S3_KEY"), variable("QUIVER_TEST_S3_SECRET"), "",
                             "us-east-1"};
    auto answer = around_.http->perform(request, nullptr, {});
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? answer->status : 0;
  }

  Surroundings around_;
  std::string bucket_, prefix_;
  std::set<std::string> keys_;
  std::unique_ptr<Origin> origin_;
};

std::unique_ptr<OriginWorld> real_s3() {
  if (variable("QUIVER_TEST_S3").empty()) return nullptr;
  return std::make_unique<RealS3World>();
}

template <class World, auto... args>
std::pair<std::string, WorldMaker> world(const std::string& name) {
  return {name, [] { return std::make_unique<World>(args...); }};
}

INSTANTIATE_TEST_SUITE_P(Origins, OriginContract,
                         ::testing::Values(world<MemoryWorld>("memory"),
                                           world<DirectoryWorld>("directory"),
                                           world<FakeWorld, false>("http"),
                                           world<FakeWorld, true>("fake_s3"),
                                           std::pair<std::string, WorldMaker>("seaweed", real_s3)),
                         [](const auto& tested) { return tested.param.first; });

}  // namespace
}  // namespace quiver::cache::testing
