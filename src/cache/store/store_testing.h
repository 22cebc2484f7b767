// What the store's tests share: a directory that goes away, items, and the sum that `du` would say.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "cache/store/segment_format.h"
#include "cache/store/store.h"

namespace quiver::cache {

class TemporaryDirectory {
 public:
  // In memory for tests that start a store a thousand times: each start syncs a file.
  explicit TemporaryDirectory(bool in_memory = false) {
    const std::filesystem::path base = in_memory && std::filesystem::exists("/dev/shm")
                                           ? "/dev/shm"
                                           : std::filesystem::temp_directory_path();
    std::string name = (base / "quiver-store-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_ + "/cache"; }

 private:
  std::string path_;
};

class QuietLog final : public LogSink {
 public:
  void write(LogLevel level, std::string_view) override {
    if (level == LogLevel::kWarning) ++warnings;
  }
  std::atomic<int> warnings{0};
};

// The bytes of item `n`: a function of n, so that a reader knows what it must get.
inline std::string content(std::uint64_t n, std::size_t length) {
  std::mt19937_64 random(n * 0x9e3779b97f4a7c15 + 1);
  std::string bytes(length, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

inline Result<StoredAt> put(Store& store, const std::string& bytes, const Lane& lane = {"test"},
                            Bytes segment = 1_MiB) {
  const auto item = VerifiedItem::verify(sha256(as_bytes(bytes)), as_bytes(bytes));
  return store.append(lane, *item, segment);
}

// Found, and then right: false means a wrong byte. An error is no wrong byte.
inline bool reads_right_or_not_at_all(Store& store, const Sha256& hash, bool* found = nullptr) {
  if (found) *found = false;
  const auto at = store.find(hash);
  if (!at) return true;
  std::string out(at->length.value, '\0');
  if (!store.read(*at, std::as_writable_bytes(std::span(out)))) return true;
  if (found) *found = true;
  return sha256(as_bytes(out)) == hash;
}

inline bool has(Store& store, const std::string& bytes) {
  bool found = false;
  EXPECT_TRUE(reads_right_or_not_at_all(store, sha256(as_bytes(bytes)), &found));
  return found;
}

inline Bytes disk_usage(const std::string& directory) {
  io::RealFiles files;
  Bytes sum;
  const auto top = files.stat(directory);
  if (!top) return sum;
  sum += top->blocks;
  const auto entries = files.list(directory);
  for (const auto& entry : *entries) {
    const std::string path = directory + "/" + entry.name;
    const auto info = files.stat(path);
    if (info) sum += entry.is_directory ? disk_usage(path) : info->blocks;
  }
  return sum;
}

struct StoreFixture : ::testing::Test {
  explicit StoreFixture(bool in_memory = false) : directory(in_memory) {}
  TemporaryDirectory directory;
  io::RealFiles files;
  ManualClock clock;
  QuietLog log;
  StoreOptions options{directory.path(), 64_MiB, 0.0, "boot-1"};

  std::unique_ptr<Store> open_with(io::Files& with) {
    auto store = Store::open(options, with, clock, log);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }
  std::unique_ptr<Store> open() { return open_with(files); }
  std::string segment_path(SegmentId id) const {
    return options.directory + "/segments/" + data_name(id);
  }
};

}  // namespace quiver::cache
