#include "cache/policy/window.h"

#include <algorithm>

namespace quiver::cache {

namespace {

constexpr std::uint64_t kSteps = 20, kLeastSteps = 4;

Bytes missing_part(Bytes of, Bytes pinned, Bytes dataset) {
  if (dataset.value == 0 || pinned >= dataset) return Bytes(0);
  const double part = 1.0 - static_cast<double>(pinned.value) / static_cast<double>(dataset.value);
  return Bytes(static_cast<std::uint64_t>(static_cast<double>(of.value) * part));
}

}  // namespace

Window compute_window(const WindowInputs& in) {
  const Bytes most = std::max(in.share / 2, std::min(in.share, in.set_aside));
  const bool fixed = in.fixed.value != 0, fits = in.share >= in.dataset;
  const Bytes rule =
      fixed ? in.fixed : std::max({in.dataset / 50, in.drawn_unread * 2, in.link_per_second * 5});
  // What misses depends on what is pinned, and that on the window: a few rounds settle it.
  Bytes window = std::min(rule, most);
  for (int round = 0; round < 8; ++round) {
    const auto misses_of = [&, pinned = in.share - window](std::uint64_t steps) {
      return missing_part(in.step * steps, pinned, in.dataset);
    };
    const Bytes wanted = fixed ? rule : std::max(rule, misses_of(kSteps));
    window = std::min(in.share, std::max(std::min(wanted, most), misses_of(kLeastSteps)));
  }
  return {window, fits ? in.share : in.share - window};
}

bool too_small_for_steps(const WindowInputs& in) {
  return in.share < in.dataset && in.share < in.step * 2;
}

bool worth_changing(Bytes in_use, Bytes computed) {
  return computed.value > in_use.value + in_use.value / 4 || computed < in_use / 2;
}

}  // namespace quiver::cache
