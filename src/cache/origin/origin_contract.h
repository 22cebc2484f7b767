// What every origin must do. Run over each of them by origin_contract_test.cc.
#pragma once

#include <atomic>

#include "cache/origin/testing/origin_world.h"

namespace quiver::cache::testing {

TEST_P(OriginContract, ListsWhatIsThere) {
  EXPECT_TRUE(list().empty());
  std::map<std::string, std::size_t> sizes;
  for (int i = 0; i < 7; ++i) {
    const std::string key = "c" + std::to_string(i % 3) + "/" + std::to_string(i);
    sizes[key] = static_cast<std::size_t>(i) * 100;
    world_->put(key, std::string(sizes[key], 'x'));
  }
  const auto found = list();
  ASSERT_EQ(found.size(), sizes.size());
  for (const auto& [key, size] : sizes) {
    ASSERT_TRUE(found.contains(key)) << key;
    EXPECT_EQ(found.at(key).version.size, Bytes(size));
    const ObjectVersion head = version(key);
    EXPECT_EQ(head.size, Bytes(size));
    EXPECT_EQ(head.etag, found.at(key).version.etag);
    EXPECT_EQ(head.mtime_ns, found.at(key).version.mtime_ns);
  }
}

TEST_P(OriginContract, AnErrorOfTheCallbackEndsTheListing) {
  for (int i = 0; i < 5; ++i) world_->put("k" + std::to_string(i), "x");
  int calls = 0;
  auto done = origin().list(
      [&](ListedObject) -> Status {
        ++calls;
        return error(Code::kNoSpace, "enough");
      },
      {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kNoSpace);
  EXPECT_EQ(calls, 1);
}

TEST_P(OriginContract, ReadsExactlyTheRange) {
  const std::string bytes = noise(300'000, 1);
  world_->put("k", bytes);
  const ObjectVersion v = version("k");
  const std::vector<std::pair<std::size_t, std::size_t>> ranges = {
      {0, bytes.size()},     {0, 1},           {0, 65536}, {12345, 100'000}, {bytes.size() - 1, 1},
      {1, bytes.size() - 1}, {bytes.size(), 0}};
  for (const auto& [offset, length] : ranges) {
    auto got = read("k", offset, length, v);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE(*got == bytes.substr(offset, length)) << offset << "+" << length;
    auto any = read("k", offset, length, {});
    ASSERT_TRUE(any) << any.error().message;
    EXPECT_TRUE(*any == bytes.substr(offset, length));
  }
  EXPECT_GE(origin().stats().body_bytes.value, bytes.size());
}

TEST_P(OriginContract, AnEmptyObjectIsNeverAskedFor) {
  world_->put("empty", "");
  const auto found = list();
  ASSERT_TRUE(found.contains("empty"));
  EXPECT_EQ(found.at("empty").version.size, Bytes(0));
  EXPECT_EQ(version("empty").size, Bytes(0));
  const auto gets = origin().stats().gets;
  EXPECT_TRUE(read("empty", 0, 0, found.at("empty").version));
  EXPECT_EQ(origin().stats().gets, gets);
  EXPECT_EQ(code(read("empty", 0, 1, found.at("empty").version)), Code::kInvalid);
}

TEST_P(OriginContract, NothingIsReadBeyondTheEnd) {
  world_->put("k", "0123456789");
  const ObjectVersion v = version("k");
  EXPECT_EQ(code(read("k", 5, 6, v)), Code::kInvalid);
  EXPECT_EQ(code(read("k", UINT64_MAX, 2, v)), Code::kInvalid);
  EXPECT_EQ(code(read("k", 5, 6, {})), Code::kShort);
  EXPECT_EQ(code(read("k", 10, 1, {})), Code::kShort);
}

TEST_P(OriginContract, AnotherVersionIsChanged) {
  for (const std::string& other : {std::string("abcdefghij"), std::string("longer than before"),
                                   std::string("less"), std::string()}) {
    world_->put("k", "0123456789");
    const ObjectVersion v = version("k");
    world_->put("k", other);
    EXPECT_EQ(code(read("k", 0, 10, v)), Code::kChanged) << other;
    EXPECT_EQ(code(read("k", 2, 3, v)), Code::kChanged) << other;
    auto again = read("k", 0, other.size(), version("k"));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, other);
  }
}

TEST_P(OriginContract, WhatIsGoneIsNotFound) {
  world_->put("k", "0123456789");
  const ObjectVersion v = version("k");
  world_->remove("k");
  EXPECT_EQ(code(read("k", 0, 10, v)), Code::kNotFound);
  auto head = origin().head("k", {});
  ASSERT_FALSE(head);
  EXPECT_EQ(head.error().code, Code::kNotFound);
  EXPECT_NE(head.error().message.find('k'), std::string::npos);
  EXPECT_TRUE(list().empty());
}

TEST_P(OriginContract, KeysAreOpaqueBytes) {
  std::map<std::string, std::string> all;
  for (const std::string& key : odd_keys()) {
    if (world_->can_hold(key)) all[key] = noise(50, static_cast<unsigned>(all.size()));
  }
  EXPECT_GE(all.size(), 12u);
  for (const auto& [key, bytes] : all) world_->put(key, bytes);
  const auto found = list();
  EXPECT_EQ(found.size(), all.size());
  for (const auto& [key, bytes] : all) {
    ASSERT_TRUE(found.contains(key)) << key;
    auto got = read(key, 0, bytes.size(), found.at(key).version);
    ASSERT_TRUE(got) << key << ": " << got.error().message;
    EXPECT_TRUE(*got == bytes) << key;
    EXPECT_EQ(version(key).etag, found.at(key).version.etag) << key;
  }
}

TEST_P(OriginContract, EightThreadsReadAtOnce) {
  std::vector<std::string> objects;
  std::vector<ObjectVersion> versions;
  for (unsigned i = 0; i < 5; ++i) {
    objects.push_back(noise(20'000 + i, i));
    world_->put("k" + std::to_string(i), objects.back());
    versions.push_back(version("k" + std::to_string(i)));
  }
  std::vector<std::jthread> readers;
  for (unsigned t = 0; t < 8; ++t) {
    readers.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int n = 0; n < 25; ++n) {
        const std::size_t i = random() % objects.size();
        const std::size_t offset = random() % objects[i].size();
        const std::size_t length = random() % (objects[i].size() - offset + 1);
        auto got = read("k" + std::to_string(i), offset, length, versions[i]);
        ASSERT_TRUE(got) << got.error().message;
        EXPECT_TRUE(*got == objects[i].substr(offset, length));
      }
    });
  }
}

TEST_P(OriginContract, VersionsAreNeverMixed) {
  constexpr std::size_t kSize = 200'000;
  world_->put("k", std::string(kSize, 'a'));
  std::atomic<int> whole = 0, refused = 0;
  {
    std::jthread writer([&](std::stop_token stop) {
      for (int i = 0; !stop.stop_requested(); ++i) {
        world_->put("k", std::string(kSize, static_cast<char>('a' + i % 26)));
        std::this_thread::sleep_for(std::chrono::milliseconds(i % 7));
      }
    });
    std::vector<std::jthread> readers;
    for (int t = 0; t < 3; ++t) {
      readers.emplace_back([&] {
        for (int n = 0; n < 25; ++n) {
          auto head = origin().head("k", {});
          ASSERT_TRUE(head) << head.error().message;
          auto got = read("k", 0, kSize, head->version);
          if (got) {
            EXPECT_EQ(got->find_first_not_of((*got)[0]), std::string::npos);
          } else {
            EXPECT_EQ(got.error().code, Code::kChanged) << got.error().message;
          }
          ++(got ? whole : refused);
        }
      });
    }
    readers.clear();
  }
  EXPECT_EQ(whole + refused, 75);
}

TEST_P(OriginContract, AStopIsHeard) {
  world_->put("k", "0123456789");
  const ObjectVersion v = version("k");
  std::stop_source stop;
  stop.request_stop();
  std::string out(10, '?');
  auto done = origin().read({"k", 0, v}, std::as_writable_bytes(std::span(out)), stop.get_token());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kCancelled);
  auto listed = origin().list([](ListedObject) -> Status { return {}; }, stop.get_token());
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Code::kCancelled);
}

}  // namespace quiver::cache::testing
