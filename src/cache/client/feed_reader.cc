#include "cache/client/feed_reader.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/guarded.h"
#include "cache/client/arena.h"
#include "cache/client/feed.h"

namespace quiver::cache {
namespace {

constexpr Duration kLookForOwner = std::chrono::milliseconds(500);

// Borrows one reference of a block for as long as somebody holds it, in the process that took it: a
// fork copies the object but not the reference.
class HeldBlock {
 public:
  HeldBlock(std::shared_ptr<const Arena> arena, std::uint64_t block)
      : arena_(std::move(arena)), block_(block), pid_(::getpid()) {}
  ~HeldBlock() { release(); }
  void release() const {
    if (::getpid() == pid_ && !released_.exchange(true)) arena_->drop_reference(block_);
  }
  HeldBlock(const HeldBlock&) = delete;
  HeldBlock& operator=(const HeldBlock&) = delete;

 private:
  std::shared_ptr<const Arena> arena_;
  std::uint64_t block_;
  pid_t pid_;
  mutable std::atomic<bool> released_ = false;
};

// What a process holds, to be released at once.
class Holdings {
 public:
  void add(const std::shared_ptr<const HeldBlock>& block) {
    if (all_.size() >= look_at_) {
      std::erase_if(all_, [](const auto& held) { return held.expired(); });
      look_at_ = std::max(kLeast, 2 * all_.size());
    }
    all_.push_back(block);
  }
  void release() {
    for (const auto& held : all_) {
      if (const auto block = held.lock()) block->release();
    }
    all_.clear();
  }

 private:
  static constexpr std::size_t kLeast = 32;
  std::vector<std::weak_ptr<const HeldBlock>> all_;
  std::size_t look_at_ = kLeast;
};

class FeedReaderImpl final : public FeedReader {
 public:
  explicit FeedReaderImpl(std::shared_ptr<const Arena> arena) : arena_(std::move(arena)) {}

  Result<BatchView> wait(std::uint64_t ticket, Duration timeout) override {
    const RealClock clock;
    const Instant deadline = clock.now() + timeout;
    Slot& slot = arena_->slot(ticket);
    for (;;) {
      std::uint32_t word = slot.word.load(std::memory_order_acquire);
      const auto phase = Arena::phase_of(word, ticket);
      if (!phase) return error(Code::kCancelled, "ticket {} has been given up", ticket);
      if (*phase == Phase::kReady) {
        if (auto view = take(slot, word, ticket)) return *std::move(view);
        continue;
      }
      if (*phase == Phase::kTaken || *phase == Phase::kSent) {
        return error(Code::kInvalid, "the batch of ticket {} has been taken already", ticket);
      }
      if (*phase == Phase::kEnded) {
        BatchView view;
        view.ticket = ticket;
        view.abandoned = true;
        return view;
      }
      if (arena_->closed() || !owner_lives()) {
        return error(Code::kCancelled, "the loader that reads ahead has been closed or is gone");
      }
      const Duration left = deadline - clock.now();
      if (left <= Duration(0)) {
        return error(Code::kTimeout, "the batch of ticket {} is not ready yet", ticket);
      }
      io::futex_wait(reinterpret_cast<const std::uint32_t*>(&slot.word), word,
                     std::min(left, kLookForOwner).count());
    }
  }

  std::uint64_t identity() const override { return arena_->identity(); }

  bool send(std::uint64_t ticket) override {
    Slot& slot = arena_->slot(ticket);
    const std::uint32_t sent = Arena::word_of(ticket, Phase::kSent);
    std::uint32_t word = slot.word.load(std::memory_order_acquire);
    if (word != Arena::word_of(ticket, Phase::kTaken)) return word == sent;
    const std::uint64_t block = slot.block.load(std::memory_order_relaxed);
    if (!arena_->add_reference(block)) return false;
    if (slot.word.compare_exchange_strong(word, sent, std::memory_order_acq_rel)) return true;
    arena_->drop_reference(block);
    return word == sent;
  }

  Result<BatchView> receive(std::uint64_t ticket) override {
    Slot& slot = arena_->slot(ticket);
    const std::uint32_t sent = Arena::word_of(ticket, Phase::kSent);
    const auto given_up = [&] {
      return error(Code::kCancelled, "ticket {} was given up before its batch arrived", ticket);
    };
    if (slot.word.load(std::memory_order_acquire) != sent) return given_up();
    BatchView view = described(slot, ticket);
    const std::uint64_t block = slot.block.load(std::memory_order_relaxed);
    if (!arena_->add_reference(block)) return given_up();
    view.block = std::make_shared<const HeldBlock>(arena_, block);
    // The slot held the block while it said so, and now we do.
    if (slot.word.load(std::memory_order_acquire) != sent) return given_up();
    add_items(view, block);
    return view;
  }

  void release() override {
    held_.with([](Holdings& all) { all.release(); });
  }

 private:
  // The fields were written before the word; while the word is still the same they are of one
  // batch.
  static BatchView described(const Slot& slot, std::uint64_t ticket) {
    BatchView view;
    view.ticket = ticket;
    view.epoch = slot.epoch.load(std::memory_order_relaxed);
    view.step = slot.step.load(std::memory_order_relaxed);
    return view;
  }

  std::optional<BatchView> take(Slot& slot, std::uint32_t word, std::uint64_t ticket) {
    BatchView view = described(slot, ticket);
    const std::uint64_t block = slot.block.load(std::memory_order_relaxed);
    if (!slot.word.compare_exchange_strong(word, Arena::word_of(ticket, Phase::kTaken),
                                           std::memory_order_acq_rel)) {
      return std::nullopt;
    }
    const auto held = std::make_shared<const HeldBlock>(arena_, block);
    held_.with([&](Holdings& all) { all.add(held); });
    view.block = held;
    add_items(view, block);
    return view;
  }

  void add_items(BatchView& view, std::uint64_t block) const {
    const std::uint32_t count = arena_->block(block).count;
    view.items.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      const Row& row = arena_->rows(block)[i];
      FedItem item;
      item.id = ItemId(row.id);
      item.tier = static_cast<Tier>(row.tier);
      item.failed = row.failed != 0;
      const ByteSpan bytes = ByteSpan(arena_->bytes(block, row)).first(row.length);
      if (item.failed) {
        item.code = static_cast<Code>(row.code);
        item.error = as_text(bytes);
      } else {
        item.data = bytes;
      }
      view.items.push_back(std::move(item));
    }
  }

  bool owner_lives() const {
    if (arena_->owner_pid() == ::getpid()) return true;
    io::RealFiles files;
    return files.stat(fmt::format("/proc/{}", arena_->owner_pid())).has_value();
  }

  const std::shared_ptr<const Arena> arena_;
  Guarded<Holdings> held_;
};

}  // namespace

std::shared_ptr<FeedReader> make_feed_reader(std::shared_ptr<const Arena> arena) {
  return std::make_shared<FeedReaderImpl>(std::move(arena));
}

Result<std::shared_ptr<FeedReader>> FeedReader::attach(const io::Fd& shared) {
  std::shared_ptr<Arena> arena = TRY(Arena::attach(shared));
  return make_feed_reader(std::move(arena));
}

}  // namespace quiver::cache
