// The cache's disk: removed below us, filled by others, failing. All of it is computed from what is
// now, so that a daemon is well again as soon as its disk is.
#include <algorithm>

#include "base/text.h"
#include "cache/server/control.h"

namespace quiver::cache {

// True when the directory had been removed and was made anew. The store says so in its log.
bool Control::check_directory(Instant now) {
  const auto recreated = context_.store.recreate_if_gone();
  if (!recreated && recreated.error().code == Code::kUnavailable) {
    log(context_.log, LogLevel::kWarning, "leaving the directory to another daemon: {}",
        recreated.error().message);
    stop();
    return false;
  }
  if (!recreated) disk_trouble(recreated.error());
  if (!recreated || !*recreated) return false;
  recreated_ = now;
  ++relocations_;
  for (auto& [root, dataset] : datasets_) {
    dataset->withdraw_all(holds_);
    changed_.insert(dataset.get());
  }
  holds_.clear();
  empty_since_.clear();
  moving_.clear();
  rescued_.clear();
  needed_.clear();
  return true;
}

// What others leave of the disk above the floor is ours, up to disk_limit: when they fill it, the
// cache shrinks.
void Control::watch_disk(Instant now) {
  if (now - trouble_since_ >= limits::kTroublePasses) {
    trouble_.clear();
    if (writable_ < context_.disk_limit) {
      writable_ = std::min(context_.disk_limit, writable_ * 2);
      trouble_since_ = now;
    }
  }
  const Bytes allocated = context_.store.stats().allocated;
  Bytes fits = context_.disk_limit;
  if (const auto space = context_.files.space(context_.cache_directory)) {
    const Bytes floor = Bytes(static_cast<std::uint64_t>(context_.settings.disk_floor *
                                                         static_cast<double>(space->total.value)));
    const Bytes room = allocated + space->available;
    fits = std::min(fits, room > floor ? room - floor : Bytes(0));
  }
  const bool was = crowded_;
  set_limit(std::min(fits, writable_));
  crowded_ = fits < context_.disk_limit && allocated + limit_ / 8 >= limit_;
  if (crowded_ && !was && now >= next_warning_) {
    next_warning_ = now + limits::kWarnAgain;
    log(context_.log, LogLevel::kWarning, "the cache is degraded: {}", trouble());
  }
}

// Each change moves what is pinned: small ones wait, unless something has to go at once.
void Control::set_limit(Bytes limit) {
  const Bytes step = std::min(context_.disk_limit / 16, limit_ / 2);
  const bool full = limit == context_.disk_limit || context_.store.stats().allocated > limit;
  const Bytes apart = std::max(limit, limit_) - std::min(limit, limit_);
  if (limit == limit_ || (!full && apart < step)) return;
  limit_ = limit;
  context_.store.set_disk_limit(limit_);
  reshare();
}

// The disk refused a write though the budget had room (a quota, say: hold less, and try again
// later), or it fails.
void Control::disk_trouble(const Error& error) {
  if (error.code == Code::kCancelled) return;
  const Instant now = context_.clock.now();
  const StoreStats store = context_.store.stats();
  const bool refused =
      error.code == Code::kNoSpace && store.allocated + store.limit / 8 < store.limit;
  if (error.code == Code::kNoSpace && !refused) return;  // our own budget: only slower
  trouble_since_ = now;
  trouble_ = error.message;
  if (now >= next_warning_) {
    next_warning_ = now + limits::kWarnAgain;
    log(context_.log, LogLevel::kWarning, "the cache is degraded: {}", trouble_);
  }
  if (!refused) return;
  writable_ = std::max(store.allocated, context_.disk_limit / 64);
  set_limit(std::min(limit_, writable_));
}

// Empty when all is well.
std::string Control::trouble() const {
  if (!trouble_.empty()) return trouble_;
  if (!crowded_) return {};
  return fmt::format("others fill the disk of '{}': the cache may hold {} of its {}",
                     context_.cache_directory, format_bytes(limit_),
                     format_bytes(context_.disk_limit));
}

}  // namespace quiver::cache
