// Directory: the cache's directory on disk: its marker, its lock, its boot file.
//
// Owns the lock for as long as it lives. Invariant: the directory is this user's and nobody else
// can write it, so what is in it is what we put there; all paths below it begin at its open
// descriptor, so that another directory of the same name, put in its place, is never touched.
// `flock`, `statfs` and `fchmod` are called here and nowhere else in the store. Threads: everything
// but `recreate` may be called by any thread at any time.
#pragma once

#include <mutex>
#include <string>

#include "base/guarded.h"
#include "cache/store/segment_format.h"
#include "io/file.h"

namespace quiver::cache {

// What statfs says of the place.
struct FileSystem {
  std::uint64_t type = 0;
  bool read_only = false;
};
Result<FileSystem> file_system_of(std::string path);  // of the nearest ancestor that is there
// The name of a network file system, which may not hold a cache; nullptr for any other.
const char* network_file_system(std::uint64_t type);
// One sentence for a failure to create or write below `directory`, by its cause.
Error explain_failure(const std::string& directory, bool existed, const FileSystem& system,
                      Error cause);

class Directory {
 public:
  static Result<std::unique_ptr<Directory>> open(const std::string& path, io::Files& files);

  const std::string& path() const { return path_; }  // its name, for messages
  std::string data_path(SegmentId id) const;
  std::string index_path(SegmentId id) const;
  // Flags as of open(2); links are not followed, new files are 0600.
  Result<io::Fd> open_data(SegmentId id, int flags) const;
  Result<io::Fd> open_index(SegmentId id, int flags) const;
  std::string segments_path() const { return base_ + "/segments"; }
  std::string boot_path() const { return base_ + "/boot"; }
  // Disk blocks of all that is beside the folder of segments, with room for what is written beside
  // the boot file; of what is in that folder and is no segment; and of the folder itself, which
  // grows with its files.
  Result<Bytes> overhead_beside_segments() const;
  Result<Bytes> foreign() const;
  Result<Bytes> folder() const {
    return TRY(files_.stat(segments_path()))
    .blocks;
  }
  // The granule in which this file system allocates, as far as one can see.
  Bytes unit() const { return unit_; }

  Result<bool> gone() const;
  // Makes what is missing of layout, marker and lock; one thread. A lock that is still that of the
  // marker is kept throughout.
  Status recreate();

 private:
  Directory(const std::string& path, io::Files& files) : path_(path), files_(files) {}
  Status check_place();
  Result<io::Fd> take_hold();
  Status make_private(int fd, const io::FileInfo& info);
  Result<bool> is_fresh(const std::string& base) const;
  Status check_segments_folder();
  Status lock(const std::string& base);
  Result<bool> holds_lock_of(const std::string& base) const;
  Status claim(int fd);
  Status remove_leftovers() const;
  Result<Bytes> blocks_below(const std::string& directory, bool skip_segments) const;
  std::string marker_path() const { return base_ + "/quiver-cache"; }

  const std::string path_;
  io::Files& files_;
  io::Fd hold_;       // of the directory; its number stays the same for life
  std::string base_;  // the path of that descriptor
  FileSystem system_;
  bool existed_ = false;
  Bytes unit_{4096};
  struct Lock {
    io::Fd marker;
    std::uint64_t device = 0, inode = 0;
  };
  Guarded<Lock> lock_;
};

// The boot file and the numbers of segments that it hands out. A number that was given out is never
// given out again, also not after kill -9: they are reserved on disk in batches.
class BootFile {
 public:
  BootFile(const Directory& directory, io::Files& files) : directory_(directory), files_(files) {}
  // Reads what the last run left. Segments below `suspect_below()` are to be verified.
  Status begin(const std::string& boot_id, std::uint32_t above_all_segments);
  std::uint32_t suspect_below() const;
  bool was_clean() const;  // all that the last run left is on the disk itself
  // `taken(number)`: is there such a segment still (numbers begin anew after 2^24)?
  template <class Taken>
  Result<SegmentId> next_number(const Taken& taken) {
    for (;;) {
      const SegmentId id = TRY(next_number());
      if (!taken(id)) return id;
    }
  }
  Status nothing_suspect();
  Status mark_clean();
  Status rewrite();  // after the directory was made anew

 private:
  Result<SegmentId> next_number();
  Status write(const BootState& state);

  const Directory& directory_;
  io::Files& files_;
  // Held while the file is written: its versions must reach the disk in order. Nobody waits for it
  // but who begins a segment at the end of a batch of numbers.
  mutable std::mutex busy_;
  BootState state_;  // as on disk
  bool was_clean_ = false;
  std::uint32_t next_ = 0;  // below state_.next_segment
};

}  // namespace quiver::cache
