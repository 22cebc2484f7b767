// ReadLog: what the items of a provisional manifest were found to hold, so that an interrupted
// first epoch goes on where it was.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "cache/view/view.h"
#include "io/file.h"

namespace quiver::cache {

// A file of rows that are appended: u32 item, u32 checksum of the rest, SHA-256. What follows a row
// that is not whole is cut off. Owned by one dataset of the daemon. Failure: add() is an error of
// the disk, and loses nothing but the row.
class ReadLog {
 public:
  // In `directory`, which is made; named by the manifest's public id.
  static Result<ReadLog> open(io::Files& files, const std::string& directory,
                              const std::string& public_id, std::uint32_t items);
  std::vector<std::pair<ItemId, Sha256>> take_rows() { return std::move(rows_); }
  Status add(ItemId id, const Sha256& content);
  Status remove();

 private:
  ReadLog(io::Files& files, std::string path, io::Fd fd)
      : files_(&files), path_(std::move(path)), fd_(std::move(fd)) {}
  io::Files* files_;
  std::string path_;
  io::Fd fd_;
  std::uint64_t end_ = 0;
  std::vector<std::pair<ItemId, Sha256>> rows_;
};

}  // namespace quiver::cache
