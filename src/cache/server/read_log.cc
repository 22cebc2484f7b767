#include "cache/server/read_log.h"

#include <fcntl.h>

#include <cstring>

namespace quiver::cache {

namespace {

struct Row {
  std::uint32_t item, checksum;
  Sha256 content;
};
static_assert(sizeof(Row) == 40);

std::uint32_t checksum_of(const Row& row) {
  Row bare = row;
  bare.checksum = 0;
  return checksum32(std::as_bytes(std::span(&bare, 1)));
}

}  // namespace

Result<ReadLog> ReadLog::open(io::Files& files, const std::string& directory,
                              const std::string& public_id, std::uint32_t items) {
  TRY(files.make_directories(directory, 0700));
  const std::string path = directory + "/" + public_id;
  ReadLog log(files, path, TRY(files.open(path, O_RDWR | O_CREAT, 0600)));
  const io::FileInfo info = TRY(files.stat(log.fd_.get()));
  // No more rows than items: a file that grew beyond is cut, never read whole.
  const std::uint64_t most = std::min<std::uint64_t>(info.size.value / sizeof(Row), items);
  std::vector<Row> rows(most);
  const std::size_t got =
      TRY(files.pread(log.fd_.get(), std::as_writable_bytes(std::span(rows)), 0));
  rows.resize(got / sizeof(Row));
  for (const Row& row : rows) {
    if (row.item >= items || row.checksum != checksum_of(row)) break;
    log.rows_.emplace_back(ItemId(row.item), row.content);
    log.end_ += sizeof(Row);
  }
  if (log.end_ != info.size.value) TRY(files.truncate(log.fd_.get(), log.end_));
  return log;
}

Status ReadLog::add(ItemId id, const Sha256& content) {
  Row row{id.value, 0, content};
  row.checksum = checksum_of(row);
  TRY(files_->pwrite(fd_.get(), std::as_bytes(std::span(&row, 1)), end_));
  end_ += sizeof(Row);
  return {};
}

Status ReadLog::remove() {
  return files_->remove(path_);
}

}  // namespace quiver::cache
