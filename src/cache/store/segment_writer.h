// SegmentWriter: the two files of one open segment, appended to by one thread at a time.
//
// Data first, then the row, so that a row never speaks of bytes that are not there. What a failed
// write left is taken back; where even that fails the writer is broken() and must be sealed: its
// tail is then garbage that no row names. Descriptors can be parked to bound their number.
#pragma once

#include "cache/store/directory.h"
#include "cache/store/segment_format.h"
#include "io/file.h"

namespace quiver::cache {

class SegmentWriter {
 public:
  // Creates both files; on failure neither stays.
  static Result<SegmentWriter> create(const Directory& directory, io::Files& files, SegmentId id,
                                      const Lane& lane);

  SegmentId id() const { return id_; }
  std::uint64_t end() const { return end_; }
  std::uint32_t rows() const { return rows_; }
  bool broken() const { return broken_; }
  bool parked() const { return !data_.valid(); }
  void park() { data_.reset(), index_.reset(); }
  Status unpark();  // breaks it when the files are not as they were left

  // Writes bytes and row; the row's offset must be end().
  Status append(const IndexRow& row, ByteSpan bytes);
  // What both files occupy: the blocks, and at least their length in whole units.
  Result<Bytes> allocated() const;
  // What an item of this length may add to allocated().
  Bytes growth(std::uint64_t length, Bytes unit) const;

 private:
  SegmentWriter(const Directory& directory, io::Files& files, SegmentId id)
      : directory_(&directory), files_(&files), id_(id) {}
  void take_back();

  const Directory* directory_;
  io::Files* files_;
  SegmentId id_;
  io::Fd data_, index_;
  std::uint64_t end_ = 0;
  std::uint32_t rows_ = 0;
  bool broken_ = false;
};

constexpr Bytes in_units(Bytes bytes, Bytes unit) {
  return Bytes((bytes.value + unit.value - 1) / unit.value * unit.value);
}
// File systems that allocate late report few blocks at first: the length is the least that counts.
constexpr Bytes occupied(const io::FileInfo& info, Bytes unit) {
  return std::max(info.blocks, in_units(info.size, unit));
}

}  // namespace quiver::cache
