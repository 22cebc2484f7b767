// One structured line per event on stderr; nothing on the hit path. Never a root, hash or
// credential.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace quiver {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Where log lines go. Any thread may call write.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void write(LogLevel level, std::string_view line) = 0;
};

class StderrLog final : public LogSink {
 public:
  explicit StderrLog(LogLevel least) : least_(least) {}
  void write(LogLevel level, std::string_view line) override;

 private:
  LogLevel least_;
};

template <class... Args>
void log(LogSink& sink, LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  sink.write(level, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace quiver
