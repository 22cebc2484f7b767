// What every job does and why, each second.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/text.h"
#include "quiver_commands.h"
#include "quiver_text.h"
#include "quiver_top_table.h"

namespace quiver {

namespace {

using Json = nlohmann::json;

constexpr Duration kRefresh = std::chrono::seconds(1);
// Less than the patience that a second Ctrl-C, or a long time after the first, puts an end to.
constexpr Duration kPatience = std::chrono::seconds(3);

// The terminal's other screen, without a cursor, for as long as it lives.
class Screen {
 public:
  Screen() { write("\x1b[?1049h\x1b[?25l"); }
  ~Screen() { write("\x1b[?25h\x1b[?1049l"); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void show(const std::vector<std::string>& lines) {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 || size.ws_row == 0) {
      size.ws_col = 80;
      size.ws_row = 24;
    }
    std::string text = "\x1b[H";
    const std::size_t rows = std::min<std::size_t>(lines.size(), size.ws_row);
    for (std::size_t i = 0; i < rows; ++i) {
      text += std::string(first_columns(lines[i], size.ws_col)) + "\x1b[K";
      if (i + 1 < rows) text += "\r\n";
    }
    write(text + "\x1b[J");
  }

 private:
  static void write(const std::string& text) {
    fmt::print("{}", text);
    std::fflush(stdout);
  }
};

Result<Json> look(const Command& command, std::optional<cache::Greeted>& daemon) {
  if (!daemon) daemon = TRY(daemon_of(command, false));
  auto status = status_of(command, *daemon, kPatience);
  if (!status) daemon.reset();
  return status;
}

void pause(const Command& command) {
  const auto& clock = command.environment.clock;
  const Instant until = clock.now() + kRefresh;
  while (!command.stop.stop_requested() && clock.now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Daemons come and go: a job's end is no reason to stop looking.
void live(const Command& command, std::optional<cache::Greeted> daemon) {
  Screen screen;
  while (!command.stop.stop_requested()) {
    const auto status = look(command, daemon);
    screen.show(status ? top_lines(top_of(*status))
                       : std::vector<std::string>{status.error().message + "; waiting for one"});
    pause(command);
  }
}

}  // namespace

Result<int> run_top(const Command& command, bool once) {
  std::optional<cache::Greeted> daemon;
  Json status = TRY(look(command, daemon));
  if (command.json) {
    for (;;) {
      print_json(top_of(status));
      std::fflush(stdout);
      if (once) return 0;
      pause(command);
      if (command.stop.stop_requested()) return 0;
      status = TRY(look(command, daemon));
    }
  }
  if (once || ::isatty(STDOUT_FILENO) == 0) {
    for (const std::string& line : top_lines(top_of(status))) fmt::print("{}\n", line);
  } else {
    live(command, std::move(daemon));
  }
  return 0;
}

}  // namespace quiver
