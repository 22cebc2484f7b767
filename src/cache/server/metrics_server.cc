#include "cache/server/metrics_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "cache/server/daemon_limits.h"
#include "cache/server/metrics_text.h"
#include "io/process.h"

namespace quiver::cache {

namespace {

constexpr std::string_view kHeaderEnd = "\r\n\r\n";

std::string page_of(std::string_view status, std::string_view body,
                    std::string_view type = "text/plain; charset=utf-8",
                    std::string_view more = "") {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n"
      "X-Content-Type-Options: nosniff\r\n{}\r\n{}",
      status, type, body.size(), more, body);
}

// The value of a header field, without the blanks around it.
std::string field_of(std::string_view head, std::string_view name) {
  for (std::size_t at = head.find("\r\n"); at != std::string_view::npos;) {
    at += 2;
    const std::size_t end = std::min(head.find("\r\n", at), head.size());
    const std::string_view line = head.substr(at, end - at);
    const auto same = [](char a, char b) { return (a | 0x20) == (b | 0x20); };
    if (line.size() > name.size() && line[name.size()] == ':' &&
        std::equal(name.begin(), name.end(), line.begin(), same)) {
      const std::size_t first = line.find_first_not_of(" \t", name.size() + 1);
      return std::string(first == std::string_view::npos ? "" : line.substr(first));
    }
    at = head.find("\r\n", at);
  }
  return {};
}

// A web page whose name somebody makes to mean this machine is not to read what is served here.
bool names_this_machine(std::string_view host) {
  if (host.empty()) return true;
  if (!host.ends_with(']')) host = host.substr(0, host.rfind(':'));
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address, Page page,
                                                            const Clock& clock) {
  const auto listen = [&]() -> Result<Listener> {
    if (address.starts_with('/')) {
      return Listener(std::in_place_index<0>, TRY(io::UnixListener::bind(address, 0600)));
    }
    std::uint16_t port = 0;
    const std::string_view digits = std::string_view(address).substr(address.rfind(':') + 1);
    std::from_chars(digits.data(), digits.data() + digits.size(), port);
    return Listener(std::in_place_index<1>,
                    TRY(io::LoopbackListener::bind(port, address.starts_with('['))));
  };
  Listener listener = TRY(listen());
  return std::unique_ptr<MetricsServer>(
      new MetricsServer(std::move(listener), std::move(page), clock));
}

MetricsServer::MetricsServer(Listener listener, Page page, const Clock& clock)
    : listener_(std::move(listener)), page_(std::move(page)), clock_(clock) {
  for (int i = 0; i < limits::kScrapers; ++i) {
    threads_.emplace_back([this, i](std::stop_token stop) {
      io::name_this_thread(fmt::format("metrics-{}", i));
      serve(std::move(stop));
    });
  }
}

void MetricsServer::stop() {
  for (auto& thread : threads_) thread.request_stop();
  std::visit([](auto& listener) { listener.shutdown(); }, listener_);
  threads_.clear();
}

void MetricsServer::serve(std::stop_token stop) {
  while (!stop.stop_requested()) {
    auto socket = std::visit(
        [&](auto& listener) { return listener.accept(clock_.now() + limits::kScrapePatience); },
        listener_);
    if (socket) {
      answer(*std::move(socket));
    } else if (socket.error().code == Code::kUnavailable) {
      return;
    } else if (socket.error().code != Code::kTimeout) {
      std::this_thread::sleep_for(limits::kRoomPause);  // no descriptor was free
    }
  }
}

void MetricsServer::answer(io::UnixSocket socket) {
  const Instant deadline = clock_.now() + limits::kScrapePatience;
  std::string request;
  std::array<std::byte, 2048> some;
  while (request.find(kHeaderEnd) == std::string::npos &&
         request.size() <= limits::kScrapeRequest) {
    const auto got = socket.receive_some(some, deadline);
    if (!got || *got == 0) return;  // too slow, or gone
    request += as_text(ByteSpan(some).first(*got));
  }
  const std::string reply = response(request);
  const Instant until = clock_.now() + limits::kScrapePatience;
  static_cast<void>(socket.send(as_bytes(reply), {}, until));
  // What it sent beyond the header is read away: to close over it would take back the answer.
  socket.shutdown_sending();
  for (std::size_t more = 0; more < limits::kScrapeRequest;) {
    const auto got = socket.receive_some(some, until);
    if (!got || *got == 0) return;
    more += *got;
  }
}

std::string MetricsServer::response(const std::string& request) const {
  const std::size_t end = request.find(kHeaderEnd);
  if (end == std::string::npos) {
    return page_of("431 Request Header Fields Too Large", "the request is too long\n");
  }
  const std::string_view head = std::string_view(request).substr(0, end);
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == 0 || first == std::string_view::npos || first == last ||
      !line.substr(last + 1).starts_with("HTTP/1.")) {
    return page_of("400 Bad Request", "this is no request of HTTP/1\n");
  }
  if (!names_this_machine(field_of(head, "Host"))) {
    return page_of("403 Forbidden", "ask for localhost, 127.0.0.1 or [::1]\n");
  }
  if (line.substr(0, first) != "GET") {
    return page_of("405 Method Not Allowed", "only GET is answered\n", "text/plain; charset=utf-8",
                   "Allow: GET\r\n");
  }
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (target.substr(0, target.find('?')) != "/metrics") {
    return page_of("404 Not Found", "the figures are at /metrics\n");
  }
  const auto text = page_();
  if (!text) return page_of("503 Service Unavailable", text.error().message + "\n");
  return page_of("200 OK", *text, kMetricsType);
}

}  // namespace quiver::cache
