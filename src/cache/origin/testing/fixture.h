// An origin over a scripted server, for tests of what goes wrong.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "cache/origin/origin.h"
#include "cache/origin/testing/fake_objects.h"

namespace quiver::cache::testing {

// Back-off is counted, not waited for: `waited` sums it up and the clock moves on by it.
class FaultFixture : public ::testing::Test {
 protected:
  using Handler = io::testing::ScriptedHttp::Handler;

  // Opens `settings`; an empty URL or endpoint becomes the server's.
  Origin& open(Handler handler, OriginSettings settings) {
    server = std::make_unique<io::testing::ScriptedHttp>(std::move(handler));
    if (settings.url.empty()) settings.url = server->url() + "/base";
    if (settings.url.starts_with("s3:") && settings.endpoint.empty()) {
      settings.endpoint = server->url();
    }
    settings.stall_timeout = std::chrono::milliseconds(200);
    auto opened = open_origin(settings, {files, *http, clock, 1, waiter(), nullptr, credentials});
    EXPECT_TRUE(opened) << opened.error().message;
    origin = *std::move(opened);
    return *origin;
  }
  std::function<bool(std::chrono::milliseconds, std::stop_token)> waiter() {
    return [this](std::chrono::milliseconds time, std::stop_token stop) {
      waited += time.count();
      clock.advance(time);
      if (on_wait) on_wait();
      return !stop.stop_requested();
    };
  }
  Result<std::string> read(const std::string& key, std::uint64_t offset, std::size_t length,
                           ObjectVersion expected = {}) {
    std::string out(length, '?');
    auto done = origin->read({key, offset, std::move(expected)},
                             std::as_writable_bytes(std::span(out)), {});
    if (!done) return std::move(done).error();
    return out;
  }
  // Expects a failure, and that its message names the key; returns code and message.
  Error failure(const std::string& key, std::uint64_t offset, std::size_t length,
                ObjectVersion expected = {}) {
    auto got = read(key, offset, length, std::move(expected));
    EXPECT_FALSE(got) << "read: " << (got ? *got : "");
    if (got) return {};
    EXPECT_NE(got.error().message.find(key), std::string::npos) << got.error().message;
    return got.error();
  }
  std::uint64_t retries(RetryClass which) const {
    return origin->stats().retries_by_class[static_cast<std::size_t>(which)];
  }

  FakeObjects objects;
  std::shared_ptr<RenewableCredentials> credentials;  // in place of those of the settings
  io::RealFiles files;
  std::unique_ptr<io::HttpTransport> http = io::make_curl_transport(8);
  ManualClock clock;
  std::atomic<std::int64_t> waited = 0;
  std::function<void()> on_wait;
  std::unique_ptr<io::testing::ScriptedHttp> server;
  std::unique_ptr<Origin> origin;
};

}  // namespace quiver::cache::testing
