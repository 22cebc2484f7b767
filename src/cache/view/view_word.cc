#include "base/check.h"
#include "cache/view/view.h"

namespace quiver::cache {
namespace {

constexpr int kResidencyShift = 62, kPinnedShift = 61, kSegmentShift = 36;
constexpr std::uint64_t kOffsetMask = kMaxSegmentBytes - 1;

}  // namespace

ViewWord ViewWord::here(SegmentId segment, std::uint64_t offset, bool pinned) {
  CHECK(segment.value < kMaxSegments);
  CHECK(offset < kMaxSegmentBytes);
  return ViewWord(std::uint64_t{1} << kResidencyShift | std::uint64_t{pinned} << kPinnedShift |
                  std::uint64_t{segment.value} << kSegmentShift | offset);
}

ViewWord ViewWord::near() {
  return ViewWord(std::uint64_t{2} << kResidencyShift);
}

// The value 3 is of no version yet: a reader that meets it has nothing to read.
Residency ViewWord::residency() const {
  const auto value = bits_ >> kResidencyShift;
  return value == 3 ? Residency::kAbsent : static_cast<Residency>(value);
}

bool ViewWord::pinned() const {
  return (bits_ >> kPinnedShift & 1) != 0;
}

SegmentId ViewWord::segment() const {
  return SegmentId(static_cast<std::uint32_t>(bits_ >> kSegmentShift & (kMaxSegments - 1)));
}

std::uint64_t ViewWord::offset() const {
  return bits_ & kOffsetMask;
}

}  // namespace quiver::cache
