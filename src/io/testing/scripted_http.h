// A small HTTP/1.1 server over plain sockets whose every answer a test writes, faults included.
//   ScriptedHttp server([](const ScriptedRequest& r) { return ScriptedReply{.body = "x"}; });
//   transport->perform({.url = server.url() + "/key"}, nullptr, {});
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/guarded.h"
#include "io/file.h"

namespace quiver::io::testing {

struct ScriptedRequest {
  std::string method, target;  // the target as it was sent: path and query
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;

  std::string header(std::string_view lower_case_name) const {
    for (const auto& [name, value] : headers) {
      if (name == lower_case_name) return value;
    }
    return {};
  }
  // "Range: bytes=a-b", both included.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> range() const {
    const std::string text = header("range");
    std::uint64_t first = 0, last = 0;
    const char* end = text.data() + text.size();
    if (!text.starts_with("bytes=")) return std::nullopt;
    auto a = std::from_chars(text.data() + 6, end, first);
    if (a.ec != std::errc{} || a.ptr == end || *a.ptr != '-') return std::nullopt;
    auto b = std::from_chars(a.ptr + 1, end, last);
    if (b.ec != std::errc{} || b.ptr != end) return std::nullopt;
    return std::pair{first, last};
  }
};

struct ScriptedReply {
  enum class Ending { kKeepAlive, kClose, kReset };

  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  std::optional<std::uint64_t> content_length = {};  // announced; else the body's
  bool announce_length = true;                       // false: the body ends with the connection
  bool chunked = false;
  std::optional<std::size_t> cut_after = {};  // so many bytes of the body, then `ending`
  std::string raw = {};                       // sent instead of all of the above
  Ending ending = Ending::kKeepAlive;
  std::chrono::milliseconds delay{0};  // before the first byte
  std::chrono::milliseconds stall{0};  // before the ending
  std::uint64_t endless = 0;           // the body is repeated up to so many bytes
};

// Owns a loopback socket and a thread per connection, which call the handler; all end with it.
class ScriptedHttp {
 public:
  using Handler = std::function<ScriptedReply(const ScriptedRequest&)>;

  explicit ScriptedHttp(Handler handler) : handler_(std::move(handler)) {
    listener_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    CHECK(listen(listener_.get(), 64) == 0);
    socklen_t length = sizeof at;
    CHECK(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &length) == 0);
    port_ = ntohs(at.sin_port);
    acceptor_ = std::jthread([this](std::stop_token stop) { accept_all(stop); });
  }
  ~ScriptedHttp() {
    acceptor_.request_stop();
    acceptor_.join();
    connections_.with([](auto& all) { return std::exchange(all, {}); });  // joins outside the lock
  }

  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int connections() const { return accepted_.load(); }
  std::vector<ScriptedRequest> requests() const {
    return log_.with([](const auto& log) { return log; });
  }

 private:
  static constexpr int kPollMs = 10;

  static bool readable(int fd, std::stop_token stop) {
    while (!stop.stop_requested()) {
      pollfd p{fd, POLLIN, 0};
      if (poll(&p, 1, kPollMs) > 0) return true;
    }
    return false;
  }

  void accept_all(std::stop_token stop) {
    while (readable(listener_.get(), stop)) {
      Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.valid()) continue;
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ++accepted_;
      connections_.with([&](auto& all) {
        all.emplace_back([this, f = std::move(fd)](std::stop_token end) { serve(f.get(), end); });
      });
    }
  }

  void serve(int fd, std::stop_token stop) {
    std::string input;
    while (auto request = receive(fd, input, stop)) {
      log_.with([&](auto& log) { log.push_back(*request); });
      const ScriptedReply reply = handler_(*request);
      if (!answer(fd, request->method == "HEAD", reply, stop)) break;
    }
    ::shutdown(fd, SHUT_RDWR);
  }

  static std::optional<ScriptedRequest> receive(int fd, std::string& input, std::stop_token stop) {
    auto more = [&] {
      char buffer[65536];
      if (!readable(fd, stop)) return false;
      const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
      if (n > 0) input.append(buffer, static_cast<std::size_t>(n));
      return n > 0;
    };
    std::size_t end;
    while ((end = input.find("\r\n\r\n")) == input.npos) {
      if (!more()) return std::nullopt;
    }
    ScriptedRequest request;
    std::size_t line_end = input.find("\r\n");
    const std::string first = input.substr(0, line_end);
    const auto space = first.find(' '), last = first.rfind(' ');
    request.method = first.substr(0, space);
    request.target = first.substr(space + 1, last - space - 1);
    while (line_end < end) {
      const std::size_t start = line_end + 2;
      line_end = input.find("\r\n", start);
      const std::string line = input.substr(start, line_end - start);
      const auto colon = line.find(": ");
      if (colon == line.npos) continue;
      std::string name = line.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(), ::tolower);
      request.headers.emplace_back(name, line.substr(colon + 2));
    }
    const std::string length = request.header("content-length");
    const std::size_t body = length.empty() ? 0 : std::stoul(length);
    while (input.size() < end + 4 + body) {
      if (!more()) return std::nullopt;
    }
    request.body = input.substr(end + 4, body);
    input.erase(0, end + 4 + body);
    return request;
  }

  static bool send_all(int fd, std::string_view data) {
    while (!data.empty()) {
      const ssize_t n = send(fd, data.data(), data.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      data.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  static void wait(std::chrono::milliseconds time, std::stop_token stop) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (!stop.stop_requested() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(
          std::min<std::chrono::milliseconds>(std::chrono::milliseconds(kPollMs), time));
    }
  }

  static std::string head_of(const ScriptedReply& reply) {
    std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " Scripted\r\n";
    for (const auto& [name, value] : reply.headers) head += name + ": " + value + "\r\n";
    if (reply.chunked) {
      head += "Transfer-Encoding: chunked\r\n";
    } else if (reply.announce_length) {
      const auto length =
          reply.content_length.value_or(reply.endless ? reply.endless : reply.body.size());
      head += "Content-Length: " + std::to_string(length) + "\r\n";
    }
    return head + "\r\n";
  }

  // False when the connection is over.
  static bool answer(int fd, bool head_only, const ScriptedReply& reply, std::stop_token stop) {
    wait(reply.delay, stop);
    if (!reply.raw.empty()) return send_all(fd, reply.raw) && finish(fd, reply, stop);
    if (!send_all(fd, head_of(reply))) return false;
    if (head_only) return finish(fd, reply, stop);
    std::string_view body = reply.body;
    if (reply.cut_after) body = body.substr(0, *reply.cut_after);
    if (reply.chunked && !body.empty()) {
      char size[20];
      const auto end = std::to_chars(size, size + sizeof size, body.size(), 16).ptr;
      if (!send_all(fd, std::string(size, end) + "\r\n" + std::string(body) + "\r\n")) return false;
    } else if (reply.endless && !body.empty()) {
      for (std::uint64_t sent = 0; sent < reply.endless; sent += body.size()) {
        if (stop.stop_requested()) return false;
        if (!send_all(fd, body.substr(0, reply.endless - sent))) return false;
      }
    } else if (!send_all(fd, body)) {
      return false;
    }
    if (reply.chunked && !reply.cut_after && !send_all(fd, "0\r\n\r\n")) return false;
    return finish(fd, reply, stop) && reply.announce_length;
  }

  static bool finish(int fd, const ScriptedReply& reply, std::stop_token stop) {
    wait(reply.stall, stop);
    if (reply.ending == ScriptedReply::Ending::kReset) {
      const linger now{1, 0};
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      // The reset itself comes with close: shutdown() would send an orderly end first.
      const int dead = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      dup2(dead, fd);
      close(dead);
    }
    return reply.ending == ScriptedReply::Ending::kKeepAlive;
  }

  Handler handler_;
  Fd listener_;
  int port_ = 0;
  std::atomic<int> accepted_{0};
  Guarded<std::vector<ScriptedRequest>> log_;
  Guarded<std::list<std::jthread>> connections_;
  std::jthread acceptor_;
};

}  // namespace quiver::io::testing
