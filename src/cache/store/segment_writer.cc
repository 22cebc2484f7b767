#include "cache/store/segment_writer.h"

#include <fcntl.h>

#include "base/check.h"

namespace quiver::cache {
namespace {

constexpr std::uint64_t index_end(std::uint32_t rows) {
  return (std::uint64_t{rows} + 1) * kRowBytes;
}

}  // namespace

Result<SegmentWriter> SegmentWriter::create(const Directory& directory, io::Files& files,
                                            SegmentId id, const Lane& lane) {
  SegmentWriter writer(directory, files, id);
  const auto make = [&]() -> Status {
    writer.data_ = TRY(directory.open_data(id, O_WRONLY | O_CREAT | O_EXCL));
    writer.index_ = TRY(directory.open_index(id, O_WRONLY | O_CREAT | O_EXCL));
    return files.pwrite(writer.index_.get(), encode_header(id, lane), 0);
  };
  if (auto made = make(); !made) {
    // What cannot be removed now is removed by the next start: an index without rows is no segment.
    static_cast<void>(files.remove(directory.index_path(id)));
    static_cast<void>(files.remove(directory.data_path(id)));
    return std::move(made).error().context("beginning a segment");
  }
  return writer;
}

Status SegmentWriter::unpark() {
  const auto open = [&]() -> Status {
    data_ = TRY(directory_->open_data(id_, O_WRONLY));
    index_ = TRY(directory_->open_index(id_, O_WRONLY));
    if (TRY(files_->stat(data_.get())).size.value != end_ ||
        TRY(files_->stat(index_.get())).size.value != index_end(rows_)) {
      return error(Code::kCorrupt, "segment {} is not as it was left", id_.value);
    }
    return {};
  };
  Status opened = open();
  if (!opened) park(), broken_ = true;
  return opened;
}

Status SegmentWriter::append(const IndexRow& row, ByteSpan bytes) {
  CHECK(row.offset == end_ && row.length == bytes.size() && !broken_ && !parked());
  const auto write = [&]() -> Status {
    if (Status ok = files_->pwrite(data_.get(), bytes, end_); !ok) return std::move(ok).error();
    return files_->pwrite(index_.get(), encode_row(row), index_end(rows_));
  };
  if (auto written = write(); !written) {
    take_back();
    return std::move(written).error().context("storing an item");
  }
  end_ += row.length;
  ++rows_;
  return {};
}

void SegmentWriter::take_back() {
  const bool index = files_->truncate(index_.get(), index_end(rows_)).has_value();
  const bool data = files_->truncate(data_.get(), end_).has_value();
  broken_ = !index || !data;
}

Result<Bytes> SegmentWriter::allocated() const {
  const Bytes unit = directory_->unit();
  const auto data = TRY(files_->stat(data_.get()));
  const auto index = TRY(files_->stat(index_.get()));
  return occupied(data, unit) + occupied(index, unit);
}

// Two units more: blocks in which the file system keeps a file's extents.
Bytes SegmentWriter::growth(std::uint64_t length, Bytes unit) const {
  const auto grown = [&](std::uint64_t end, std::uint64_t by) {
    return in_units(Bytes(end + by), unit) - in_units(Bytes(end), unit);
  };
  return grown(end_, length) + grown(index_end(rows_), kRowBytes) + unit * 2;
}

}  // namespace quiver::cache
