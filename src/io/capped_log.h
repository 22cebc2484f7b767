// CappedLog: a daemon's log on stderr, when stderr is a file that it shares with the daemons before
// it. When that is longer than the cap it becomes `path`.1, in the place of an earlier one, so that
// both together never hold much more than twice the cap.
//
// Where stderr is anything else (a terminal, a journal, a file that somebody named) it is left
// alone. Any thread may write. A log that cannot be renamed goes on growing.
#pragma once

#include <mutex>
#include <string>

#include "base/log.h"
#include "base/units.h"

namespace quiver::io {

class CappedLog final : public LogSink {
 public:
  CappedLog(LogLevel least, std::string path, Bytes cap = 1_MiB);
  void write(LogLevel level, std::string_view line) override;

 private:
  void cap_it();

  StderrLog stderr_;
  const std::string path_;
  const Bytes cap_;
  bool ours_ = false;  // stderr is this file
  std::mutex turning_;
};

}  // namespace quiver::io
