// The window: the part of a dataset's share that staged items may occupy. Pure.
#pragma once

#include "base/units.h"

namespace quiver::cache {

struct WindowInputs {
  Bytes dataset{};          // distinct content
  Bytes share{};            // of this dataset on this node
  Bytes step{};             // one step of all local ranks, hits included
  Bytes drawn_unread{};     // misses that were drawn and not read yet
  Bytes link_per_second{};  // measured; 0: not known
  Bytes fixed{};            // Settings.window; 0: by the rule
  Bytes set_aside{};        // of the share, for the window: so much of it may be window
};

struct Window {
  Bytes window;  // for what is staged
  Bytes pinned;  // for what stays: share − window; the whole share when it holds the dataset
};

// `fixed`, or max(2 % of the dataset, misses of 20 steps, 2 × misses drawn but not read, 5 s of the
// link); at most half the share or what is set aside. Below 20 steps, or shorter than the time over
// which the link's rate wanders, epochs are slower than the limit. It holds the misses of 4 steps
// whatever is fixed, and if it takes the whole share: of less a batch does not come together, and
// its items push one another out.
Window compute_window(const WindowInputs& in);

// The share holds fewer than two steps, and not the dataset: even with all of it as the window its
// jobs wait at each step.
bool too_small_for_steps(const WindowInputs& in);

// The link's rate wanders and each new window moves what is pinned: a new one is adopted only when
// it differs much from the one in use.
bool worth_changing(Bytes in_use, Bytes computed);

}  // namespace quiver::cache
