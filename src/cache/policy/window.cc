#include "cache/policy/window.h"

#include <algorithm>

namespace quiver::cache {

namespace {

Bytes missing_part(Bytes of, Bytes pinned, Bytes dataset) {
  if (dataset.value == 0 || pinned >= dataset) return Bytes(0);
  const double part = 1.0 - static_cast<double>(pinned.value) / static_cast<double>(dataset.value);
  return Bytes(static_cast<std::uint64_t>(static_cast<double>(of.value) * part));
}

}  // namespace

Window compute_window(const WindowInputs& in) {
  const Bytes most = std::max(in.share / 2, std::min(in.share, in.set_aside));
  const bool fits = in.share >= in.dataset;
  if (in.fixed.value != 0) {
    const Bytes window = std::min(in.fixed, most);
    return {window, fits ? in.share : in.share - window};
  }
  const Bytes least = std::max({in.dataset / 50, in.drawn_unread * 2, in.link_per_second * 5});
  // What misses depends on what is pinned, and that on the window: a few rounds settle it.
  Bytes window = std::min(least, most);
  for (int round = 0; round < 8; ++round) {
    const Bytes steps = missing_part(in.step * 20, in.share - window, in.dataset);
    window = std::min(std::max(least, steps), most);
  }
  return {window, fits ? in.share : in.share - window};
}

bool worth_changing(Bytes in_use, Bytes computed) {
  return computed.value > in_use.value + in_use.value / 4 || computed < in_use / 2;
}

}  // namespace quiver::cache
