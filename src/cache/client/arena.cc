#include "cache/client/arena.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <optional>

#include "base/check.h"
#include "cache/client/shared_memory.h"
#include "io/process.h"

namespace quiver::cache {

struct Arena::Header {
  std::array<char, 8> magic;
  std::uint32_t slots;
  std::int32_t owner;
  std::uint64_t blocks;
  std::uint64_t identity;
  std::atomic<std::uint32_t> closed;
};

namespace {

constexpr std::array<char, 8> kMagic = {'Q', 'V', 'F', 'E', 'E', 'D', '0', '2'};
constexpr std::uint64_t kAddressSpace = std::uint64_t{256} << 30;  // only what is touched is memory
constexpr std::uint64_t kLeastAddressSpace = std::uint64_t{1} << 30;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHeaderBytes = 64;  // of a block and of the arena: a cache line
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kErrorRoom = 256;  // what a failed item may say at least
constexpr std::uint64_t kLeastBlock = 16384;
constexpr std::uint32_t kPhaseBits = 4;
constexpr std::uint32_t kPhaseMask = (1u << kPhaseBits) - 1;

std::uint64_t round_up(std::uint64_t n, std::uint64_t to) {
  return (n + to - 1) / to * to;
}

// Four sizes to each power of two, so that batches of almost the same size share their blocks.
std::uint64_t size_class(std::uint64_t size) {
  size = std::max(size, kLeastBlock);
  return round_up(size, std::bit_floor(size) / 4);
}

Phase phase_in(std::uint32_t word) {
  return static_cast<Phase>(word & kPhaseMask);
}

bool holds_block(std::uint32_t word) {
  return phase_in(word) == Phase::kReady || phase_in(word) == Phase::kSent;
}

}  // namespace

Result<std::shared_ptr<Arena>> Arena::create(std::uint32_t slots) {
  auto arena = std::make_shared<Arena>();
  std::uint64_t identity = 0;
  TRY(io::random_bytes(std::as_writable_bytes(std::span(&identity, 1))));
  const std::uint64_t blocks = round_up(kHeaderBytes + slots * sizeof(Slot), kPage);
  std::uint64_t size = kAddressSpace;
  for (;; size /= 2) {  // a limit on address space may refuse the most of it
    arena->fd_ = TRY(make_sparse_memory("quiver-feed", size));
    auto mapped = io::Mapping::map(arena->fd_.get(), size, true);
    if (mapped) {
      arena->memory_ = *std::move(mapped);
      break;
    }
    if (size <= kLeastAddressSpace) return std::move(mapped).error();
  }
  auto* header = new (arena->memory_.data()) Header{};
  header->slots = slots;
  header->owner = ::getpid();
  header->blocks = blocks;
  header->identity = identity;
  header->magic = kMagic;
  return arena;
}

Result<std::shared_ptr<Arena>> Arena::attach(const io::Fd& shared) {
  io::RealFiles files;
  const io::FileInfo info = TRY(files.stat(shared.get()));
  auto arena = std::make_shared<Arena>();
  arena->memory_ = TRY(io::Mapping::map(shared.get(), info.size.value, true));
  if (info.size.value < kPage || arena->header().magic != kMagic ||
      arena->header().blocks > info.size.value || arena->header().slots == 0) {
    return error(Code::kVersion, "the memory is not a feed of this version of quiver-cache");
  }
  return arena;
}

Arena::Header& Arena::header() const {
  return *reinterpret_cast<Header*>(memory_.data());
}
std::uint64_t Arena::blocks_begin() const {
  return header().blocks;
}
int Arena::owner_pid() const {
  return header().owner;
}
bool Arena::closed() const {
  return header().closed.load(std::memory_order_acquire) != 0;
}

std::uint64_t Arena::identity() const {
  return header().identity;
}

Slot& Arena::slot(std::uint64_t ticket) const {
  return reinterpret_cast<Slot*>(memory_.data() + kHeaderBytes)[ticket % header().slots];
}

BlockHeader& Arena::block(std::uint64_t offset) const {
  return *reinterpret_cast<BlockHeader*>(memory_.data() + offset);
}

Row* Arena::rows(std::uint64_t block) const {
  return reinterpret_cast<Row*>(memory_.data() + block + kHeaderBytes);
}

MutableByteSpan Arena::bytes(std::uint64_t block, const Row& row) const {
  return {memory_.data() + block + row.offset, row.room};
}

bool Arena::add_reference(std::uint64_t offset) const {
  std::atomic<std::uint32_t>& references = block(offset).references;
  std::uint32_t seen = references.load(std::memory_order_relaxed);
  // From zero only the allocator raises it.
  while (seen != 0) {
    if (references.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void Arena::drop_reference(std::uint64_t offset) const {
  const auto before = block(offset).references.fetch_sub(1, std::memory_order_acq_rel);
  CHECK(before > 0);
}

std::uint32_t Arena::word_of(std::uint64_t ticket, Phase phase) {
  return static_cast<std::uint32_t>(ticket << kPhaseBits) | static_cast<std::uint32_t>(phase);
}

std::optional<Phase> Arena::phase_of(std::uint32_t word, std::uint64_t ticket) {
  const auto ahead =
      static_cast<std::int32_t>((word & ~kPhaseMask) - word_of(ticket, Phase::kIdle));
  if (ahead > 0) return std::nullopt;
  return ahead < 0 ? Phase::kIdle : phase_in(word);
}

void Arena::issue(std::uint64_t ticket) {
  Slot& s = slot(ticket);
  const std::uint64_t block = s.block.load(std::memory_order_relaxed);
  const std::uint32_t before =
      s.word.exchange(word_of(ticket, Phase::kWaiting), std::memory_order_acq_rel);
  if (holds_block(before)) drop_reference(block);
  io::futex_wake_all(reinterpret_cast<std::uint32_t*>(&s.word));
}

void Arena::publish(std::uint64_t ticket, std::uint64_t epoch, std::uint32_t step,
                    std::uint64_t block) {
  Slot& s = slot(ticket);
  s.epoch.store(epoch, std::memory_order_relaxed);
  s.step.store(step, std::memory_order_relaxed);
  s.block.store(block, std::memory_order_relaxed);
  std::uint32_t waiting = word_of(ticket, Phase::kWaiting);
  if (!s.word.compare_exchange_strong(waiting, word_of(ticket, Phase::kReady),
                                      std::memory_order_acq_rel)) {
    drop_reference(block);
    return;
  }
  io::futex_wake_all(reinterpret_cast<std::uint32_t*>(&s.word));
}

void Arena::end(std::uint64_t ticket) {
  Slot& s = slot(ticket);
  const std::uint32_t ended = word_of(ticket, Phase::kEnded);
  std::uint32_t word = s.word.load(std::memory_order_acquire);
  while (word < ended && word >= word_of(ticket, Phase::kWaiting)) {
    const std::uint64_t block = s.block.load(std::memory_order_relaxed);
    if (!s.word.compare_exchange_weak(word, ended, std::memory_order_acq_rel)) continue;
    if (holds_block(word)) drop_reference(block);
    io::futex_wake_all(reinterpret_cast<std::uint32_t*>(&s.word));
    return;
  }
}

bool Arena::occupied(std::uint64_t ticket) const {
  const std::uint32_t word = slot(ticket).word.load(std::memory_order_acquire);
  return phase_in(word) == Phase::kWaiting || holds_block(word);
}

void Arena::close() {
  header().closed.store(1, std::memory_order_release);
  for (std::uint32_t i = 0; i < header().slots; ++i) {
    std::atomic<std::uint32_t>& word = slot(i).word;
    std::uint32_t seen = word.load(std::memory_order_relaxed);
    if (phase_in(seen) > Phase::kWaiting) continue;
    // A futex wait ends only when the word changes.
    word.compare_exchange_strong(seen,
                                 (seen & ~kPhaseMask) | static_cast<std::uint32_t>(Phase::kClosed));
    io::futex_wake_all(reinterpret_cast<std::uint32_t*>(&word));
  }
}

BlockPlan plan_block(const std::vector<std::uint64_t>& lengths) {
  BlockPlan plan;
  std::uint64_t at = round_up(kHeaderBytes + lengths.size() * sizeof(Row), kAlignment);
  plan.rows.reserve(lengths.size());
  for (const std::uint64_t length : lengths) {
    Row row{};
    row.offset = at;
    row.length = length;
    row.room = std::max(length, kErrorRoom);
    at += round_up(row.room, kAlignment);
    plan.rows.push_back(row);
  }
  plan.size = at;
  return plan;
}

bool BlockAllocator::is_free(const Known& known) const {
  // Untouched pages would be allocated by a look at them.
  return !known.touched ||
         arena_->block(known.offset).references.load(std::memory_order_acquire) == 0;
}

std::uint64_t BlockAllocator::use(Known& known) {
  if (!known.touched) touched_ += known.capacity;
  known.touched = true;
  BlockHeader& block = arena_->block(known.offset);
  block.capacity = known.capacity;
  block.count = 0;
  block.references.store(1, std::memory_order_release);
  return known.offset;
}

Result<std::uint64_t> BlockAllocator::allocate(std::uint64_t size) {
  const std::uint64_t capacity = size_class(size);
  Known* best = nullptr;
  for (Known& known : known_) {
    if (known.capacity < capacity || !is_free(known)) continue;
    if (known.touched && known.capacity > 2 * capacity) continue;  // for a batch of its own size
    const auto rank = [](const Known& k) { return std::pair(!k.touched, k.capacity); };
    if (best == nullptr || rank(known) < rank(*best)) best = &known;
  }
  if (best != nullptr && best->touched) {
    const std::uint64_t again = use(*best);
    trim();
    return again;
  }
  if (touched_ + capacity > limit_) trim();
  if (best != nullptr) return use(*best);
  if (capacity > arena_->size() - end_) {
    return error(Code::kNoSpace, "the batches that are held fill {} GiB of address space",
                 arena_->size() >> 30);
  }
  known_.push_back({end_, round_up(capacity, kPage), false});
  end_ += known_.back().capacity;
  return use(known_.back());
}

void BlockAllocator::trim() {
  for (Known& known : known_) {
    if (touched_ <= limit_) return;
    if (!known.touched || !is_free(known)) continue;
    if (!release_pages(arena_->fd(), known.offset, known.capacity)) continue;
    known.touched = false;
    touched_ -= known.capacity;
  }
}

}  // namespace quiver::cache
