// What the contract suite needs of each origin: a store that can be changed, and ways to ask.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cache/origin/origin.h"

namespace quiver::cache::testing {

// An origin and the way to change what lies behind it.
class OriginWorld {
 public:
  virtual ~OriginWorld() = default;
  virtual Origin& origin() = 0;
  virtual void put(const std::string& key, const std::string& bytes) = 0;  // replaces at once
  virtual void remove(const std::string& key) = 0;
  // Whether the store behind it can hold an object of this name at all.
  virtual bool can_hold(const std::string& key) const = 0;
};

// Null when what it needs is not there: then the suite is skipped.
using WorldMaker = std::function<std::unique_ptr<OriginWorld>()>;

class OriginContract : public ::testing::TestWithParam<std::pair<std::string, WorldMaker>> {
 protected:
  void SetUp() override {
    world_ = GetParam().second();
    if (!world_) GTEST_SKIP() << "no server for " << GetParam().first;
  }
  Origin& origin() { return world_->origin(); }

  std::map<std::string, ListedObject> list() {
    std::map<std::string, ListedObject> found;
    auto done = origin().list(
        [&](ListedObject object) -> Status {
          EXPECT_TRUE(found.emplace(object.key, object).second) << object.key << " listed twice";
          return {};
        },
        {});
    EXPECT_TRUE(done) << done.error().message;
    return found;
  }
  ObjectVersion version(const std::string& key) {
    auto head = origin().head(key, {});
    EXPECT_TRUE(head) << head.error().message;
    return head ? head->version : ObjectVersion{};
  }
  Result<std::string> read(const std::string& key, std::uint64_t offset, std::size_t length,
                           ObjectVersion expected) {
    std::string out(length, '?');
    auto done = origin().read({key, offset, std::move(expected)},
                              std::as_writable_bytes(std::span(out)), {});
    if (!done) return std::move(done).error();
    return out;
  }
  static Code code(const Result<std::string>& result) {
    EXPECT_FALSE(result) << "read " << (result ? result->size() : 0) << " bytes";
    return result ? Code::kIo : result.error().code;
  }
  static std::string noise(std::size_t length, unsigned seed) {
    std::mt19937 random(seed);
    std::string bytes(length, 0);
    for (char& c : bytes) c = static_cast<char>(random());
    return bytes;
  }

  std::unique_ptr<OriginWorld> world_;
};

inline std::vector<std::string> odd_keys() {
  std::string longest;
  while (longest.size() < 1024) longest += longest.size() % 200 == 199 ? '/' : 'k';
  return {"a b",
          "a+b",
          "a%2Bb",
          "a%",
          "100%.jpg",
          "ü/日本.png",
          "a//b",
          "/lead",
          "x/",
          ".",
          "a/../b",
          "a?b#c",
          "\t",
          " ",
          "a&b=c;d",
          "q'\"<>&amp;",
          "e/..f/.g",
          "back\\slash",
          "a:b@c,d$e!(f)*",
          longest,
          longest.substr(0, 980)};
}

}  // namespace quiver::cache::testing
