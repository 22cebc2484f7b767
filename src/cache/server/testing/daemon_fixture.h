// A daemon in this process over a directory of files, and a raw client of its protocol. For tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/guarded.h"
#include "cache/client/protocol.h"
#include "cache/server/server.h"
#include "cache/view/job_board.h"
#include "cache/view/view.h"
#include "io/faulty_files.h"
#include "io/memory.h"
#include "rpc/connection.h"

namespace quiver::cache::testing {

// Keeps the warnings.
class QuietLog final : public LogSink {
 public:
  void write(LogLevel level, std::string_view line) override {
    if (level != LogLevel::kWarning) return;
    warnings_.with([&](auto& lines) { lines.emplace_back(line); });
  }
  std::vector<std::string> warnings() const {
    return warnings_.with([](const auto& lines) { return lines; });
  }

 private:
  Guarded<std::vector<std::string>> warnings_;
};

// Files of random bytes, and their manifest.
class TestData {
 public:
  TestData(const std::string& directory, std::uint32_t items, std::size_t length,
           std::uint64_t seed = 7, const std::string& served_at = {})
      : url(served_at.empty() ? "file://" + directory : served_at) {
    std::filesystem::create_directories(directory);
    ManifestBuilder builder(url);
    std::mt19937_64 random(seed);
    for (std::uint32_t i = 0; i < items; ++i) {
      std::string bytes(length + i % 7, '\0');
      for (char& c : bytes) c = static_cast<char>(random());
      const std::string key = "item" + std::to_string(i);
      std::ofstream(directory + "/" + key) << bytes;
      ObjectVersion version;
      version.size = Bytes(bytes.size());
      version.mtime_ns = io::RealFiles().stat(directory + "/" + key)->mtime_ns;
      const auto object = builder.add_object(key, version);
      builder.add_item(sha256(as_bytes(bytes)), Bytes(bytes.size()), key, kNoLabel, object, 0);
      contents.push_back(std::move(bytes));
    }
    file = std::move(builder).finish().value();
    root = Manifest::open(descriptor(), "test", true).value()->root();
  }
  io::Fd descriptor() const { return io::make_sealed_copy("manifest", as_bytes(file)).value(); }

  std::string url, file;
  Sha256 root;
  std::vector<std::string> contents;
};

// What a training process does, in plain steps.
class RawClient {
 public:
  explicit RawClient(const std::string& socket, Token session = {}) {
    for (int i = 0; i < 200 && !connection_; ++i) {
      auto made = rpc::Connection::connect(socket, soon());
      if (made) connection_ = std::move(*made);
      if (!made) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    hello = call<HelloReply>(Request::kHello, HelloRequest{kProtocolVersion, "test", session});
  }
  static Instant soon() { return RealClock().now() + std::chrono::seconds(20); }

  template <class R, class M>
  Result<R> call(Request type, const M& message, std::vector<int> fds = {}) {
    if (!connection_) return error(Code::kUnreachable, "no connection");
    auto reply = connection_->call(static_cast<std::uint16_t>(type), encode(message), fds, soon());
    if (!reply) return std::move(reply).error();
    received = std::move(reply->fds);
    if constexpr (std::is_same_v<R, std::monostate>) {
      return R{};
    } else {
      return decode<R>(reply->payload);
    }
  }
  Result<OpenReply> open(const TestData& data) {
    OpenRequest request;
    request.root = data.root;
    request.origin.url = data.url;
    const io::Fd manifest = data.descriptor();
    auto reply = call<OpenReply>(Request::kOpen, request, {manifest.get()});
    if (reply)
      view = std::make_unique<ViewReader>(ViewReader::map(received[0], reply->items).value());
    return reply;
  }
  Result<FetchReply> fetch(std::vector<std::uint32_t> items, std::uint32_t wait_ms = 10'000) {
    return call<FetchReply>(Request::kFetch, FetchRequest{0, std::move(items), wait_ms});
  }
  Result<JobBoardWriter> join(std::uint8_t job, std::uint32_t items, std::uint32_t batch = 4) {
    JoinRequest request;
    request.job[0] = job;
    request.name = "test";
    request.batch_size = batch;
    if (auto joined = call<std::monostate>(Request::kJoin, request); !joined) {
      return std::move(joined).error();
    }
    return JobBoardWriter::map(received[0], items);
  }
  // As a hit goes: word, descriptor, pread. Empty: it is not here, or went while it was read.
  std::string read(std::uint32_t item, std::size_t length) {
    const ViewWord word = view->word(ItemId(item));
    if (word.residency() != Residency::kHere) return {};
    auto reply =
        call<SegmentsReply>(Request::kSegments, SegmentsRequest{0, {word.segment().value}});
    if (!reply || reply->segments.empty()) return {};
    std::string bytes(length, '\0');
    io::RealFiles files;
    const auto got =
        files.pread(received[0].get(), std::as_writable_bytes(std::span(bytes)), word.offset());
    return got && *got == length ? bytes : std::string();
  }
  std::string status() {
    auto reply = call<StatusReply>(Request::kStatus, FetchRequest{});
    return reply ? reply->json : reply.error().message;
  }

  Result<HelloReply> hello = error(Code::kUnreachable, "not yet");
  std::vector<io::Fd> received;
  std::unique_ptr<ViewReader> view;

 private:
  std::unique_ptr<rpc::Connection> connection_;
};

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    char name[] = "/tmp/quiver-server-XXXXXX";
    folder = ::mkdtemp(name);
    settings.disk_limit.size = 64_MiB;
    settings.disk_floor = 0;
    settings.fetch_concurrency = 4;
  }
  ~DaemonTest() override {
    stop();
    std::filesystem::remove_all(folder);
  }
  virtual std::string cache() const { return folder + "/cache"; }
  std::string socket() const { return folder + "/socket"; }

  void start() { start(clock); }
  void start(Clock& of_the_daemon) {
    DaemonOptions options;
    options.settings = settings;
    options.cache_directory = cache();
    options.socket_path = socket();
    options.uid = ::getuid();
    options.boot_id = boot_id;
    auto made = Daemon::start(options, {faulty, *http, of_the_daemon, sink});
    ASSERT_TRUE(made) << made.error().message;
    daemon = std::move(*made);
    thread = std::jthread(
        [this](std::stop_token token) { EXPECT_TRUE(daemon->run_until_stopped(token)); });
  }
  void stop() {
    if (thread.joinable()) {
      thread.request_stop();
      thread.join();
    }
    daemon.reset();
  }
  Bytes on_disk() {
    Bytes sum;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache(), ignored)) {
      if (const auto info = files.stat(entry.path().string())) sum += info->blocks;
    }
    return sum;
  }
  template <class F>
  static bool eventually(F&& f) {
    for (int i = 0; i < 500; ++i) {
      if (f()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  std::string folder;
  Settings settings;
  std::string boot_id = "test";
  io::RealFiles files;
  io::FaultyFiles faulty{files};
  RealClock clock;
  QuietLog sink;
  std::unique_ptr<io::HttpTransport> http = io::make_curl_transport(2);
  std::unique_ptr<Daemon> daemon;
  std::jthread thread;
};

}  // namespace quiver::cache::testing
