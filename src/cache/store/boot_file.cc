#include <algorithm>

#include "cache/store/directory.h"

namespace quiver::cache {
namespace {

constexpr Bytes kBootLimit{4096};
constexpr std::uint32_t kBatch = 256;
// A start with more than half of the numbers behind it begins anew: views do not outlive a daemon.
constexpr std::uint32_t kStartAnew = kSegmentNumbers / 2;

}  // namespace

Status BootFile::begin(const std::string& boot_id, std::uint32_t above_all_segments) {
  std::lock_guard lock(busy_);
  auto text = io::read_file(files_, directory_.boot_path(), kBootLimit);
  if (!text && text.error().code != Code::kNotFound && text.error().code != Code::kInvalid) {
    return std::move(text).error();
  }
  auto last = text ? decode_boot(*text) : Result<BootState>(error(Code::kNotFound, "no boot file"));
  BootState now{boot_id, false, 0, 0};
  if (!last) {
    now.suspect_below = above_all_segments;
  } else if (last->boot_id != boot_id && !last->clean) {
    now.suspect_below = std::max(above_all_segments, last->next_segment);
  } else {
    now.suspect_below = last->suspect_below;
  }
  was_clean_ = last && last->clean;
  next_ = std::max(above_all_segments, last ? last->next_segment : 0);
  if (next_ >= kStartAnew) next_ = 0;
  now.next_segment = next_ + kBatch;
  return write(now);
}

std::uint32_t BootFile::suspect_below() const {
  std::lock_guard lock(busy_);
  return state_.suspect_below;
}

bool BootFile::was_clean() const {
  std::lock_guard lock(busy_);
  return was_clean_;
}

Result<SegmentId> BootFile::next_number() {
  std::lock_guard lock(busy_);
  if (next_ == state_.next_segment) {
    if (next_ >= kSegmentNumbers) {
      return error(Code::kUnavailable, "the numbers of segments are used up: restart the daemon");
    }
    BootState more = state_;
    more.next_segment = std::min(next_ + kBatch, kSegmentNumbers);
    if (Status ok = write(more); !ok) return std::move(ok).error();
  }
  return SegmentId(next_++);
}

Status BootFile::nothing_suspect() {
  std::lock_guard lock(busy_);
  if (state_.suspect_below == 0) return {};
  BootState state = state_;
  state.suspect_below = 0;
  return write(state);
}

Status BootFile::mark_clean() {
  std::lock_guard lock(busy_);
  BootState state = state_;
  state.clean = true;
  state.next_segment = next_;
  return write(state);
}

Status BootFile::rewrite() {
  std::lock_guard lock(busy_);
  return write(state_);
}

Status BootFile::write(const BootState& state) {
  if (Status ok =
          io::write_file_atomically(files_, directory_.boot_path(), as_bytes(encode_boot(state)));
      !ok)
    return std::move(ok).error();
  state_ = state;
  return {};
}

}  // namespace quiver::cache
