#include "cache/client/arena.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "cache/client/feed_reader.h"
#include "cache/client/shared_memory.h"

namespace quiver::cache {
namespace {

using std::chrono::milliseconds;

std::uint64_t a_block(BlockAllocator& allocator, Arena& arena, const std::string& content) {
  BlockPlan plan = plan_block({content.size()});
  const std::uint64_t block = allocator.allocate(plan.size).value();
  arena.block(block).count = 1;
  plan.rows[0].id = 7;
  arena.rows(block)[0] = plan.rows[0];
  std::memcpy(arena.bytes(block, plan.rows[0]).data(), content.data(), content.size());
  return block;
}

TEST(Arena, ABatchIsReadByItsTicketAndItsBlockComesBack) {
  auto arena = Arena::create(4).value();
  BlockAllocator allocator(arena, 1_MiB);
  auto reader = make_feed_reader(arena);
  arena->issue(9);
  EXPECT_EQ(reader->wait(9, milliseconds(1)).error().code, Code::kTimeout);
  const auto block = a_block(allocator, *arena, "hello");
  arena->publish(9, 3, 5, block);
  {
    auto view = reader->wait(9, milliseconds(1)).value();
    EXPECT_EQ(view.epoch, 3u);
    EXPECT_EQ(view.step, 5u);
    ASSERT_EQ(view.items.size(), 1u);
    EXPECT_EQ(as_text(view.items[0].data), "hello");
    EXPECT_EQ(view.items[0].id, ItemId(7));
    EXPECT_EQ(reader->wait(9, milliseconds(1)).error().code, Code::kInvalid);
    EXPECT_NE(allocator.allocate(100).value(), block);  // still held
  }
  EXPECT_EQ(allocator.allocate(100).value(), block);
}

TEST(Arena, ATicketThatIsGivenUpSaysSoAndItsBlockComesBack) {
  auto arena = Arena::create(2).value();
  BlockAllocator allocator(arena, 1_MiB);
  auto reader = make_feed_reader(arena);
  arena->issue(0);
  arena->issue(1);
  const auto block = a_block(allocator, *arena, "x");
  arena->publish(0, 0, 0, block);
  arena->end(0);
  arena->end(1);
  EXPECT_TRUE(reader->wait(0, milliseconds(1)).value().abandoned);
  EXPECT_TRUE(reader->wait(1, milliseconds(1)).value().abandoned);
  EXPECT_EQ(arena->block(block).references.load(), 0u);
  arena->issue(2);  // the slot of ticket 0
  EXPECT_EQ(reader->wait(0, milliseconds(1)).error().code, Code::kCancelled);
  arena->close();
  EXPECT_EQ(reader->wait(2, std::chrono::hours(1)).error().code, Code::kCancelled);
}

TEST(Arena, ReusingTheSlotOfABatchThatNobodyTookReleasesIt) {
  auto arena = Arena::create(1).value();
  BlockAllocator allocator(arena, 1_MiB);
  arena->issue(0);
  const auto block = a_block(allocator, *arena, "x");
  arena->publish(0, 0, 0, block);
  arena->issue(1);
  EXPECT_EQ(arena->block(block).references.load(), 0u);
  const auto late = a_block(allocator, *arena, "y");
  arena->publish(0, 0, 0, late);  // of the ticket that is gone
  EXPECT_EQ(arena->block(late).references.load(), 0u);
}

// A ticket's batch, taken as a worker does.
struct Taken {
  explicit Taken(std::uint32_t slots = 4)
      : arena(Arena::create(slots).value()), allocator(arena, 1_MiB) {}
  BatchView take(std::uint64_t ticket, const std::string& content) {
    arena->issue(ticket);
    block = a_block(allocator, *arena, content);
    arena->publish(ticket, 3, 5, block);
    return worker->wait(ticket, milliseconds(1)).value();
  }
  std::uint32_t references() const { return arena->block(block).references.load(); }

  std::shared_ptr<Arena> arena;
  BlockAllocator allocator;
  std::shared_ptr<FeedReader> worker = make_feed_reader(arena), loop = make_feed_reader(arena);
  std::uint64_t block = 0;
};

TEST(Arena, ABatchThatIsSentIsHeldByItsTicketUntilItIsDelivered) {
  Taken t;
  {
    const BatchView view = t.take(9, "hello");
    EXPECT_EQ(t.loop->receive(9).error().code, Code::kCancelled);  // not sent yet
    EXPECT_TRUE(t.worker->send(9));
    EXPECT_TRUE(t.worker->send(9));
  }
  EXPECT_EQ(t.references(), 1u);
  EXPECT_TRUE(t.arena->occupied(9 + 4));
  for (int i = 0; i < 2; ++i) {  // messages may come twice
    const BatchView view = t.loop->receive(9).value();
    EXPECT_EQ(as_text(view.items.at(0).data), "hello");
    EXPECT_EQ(view.items[0].id, ItemId(7));
    EXPECT_EQ(view.epoch, 3u);
    EXPECT_EQ(view.step, 5u);
    EXPECT_EQ(t.references(), 2u);
  }
  const BatchView kept = t.loop->receive(9).value();
  t.arena->end(9);
  EXPECT_FALSE(t.arena->occupied(9 + 4));
  EXPECT_EQ(t.references(), 1u);
  EXPECT_EQ(as_text(kept.items.at(0).data), "hello");
  EXPECT_EQ(t.loop->receive(9).error().code, Code::kCancelled);
}

TEST(Arena, ABatchThatIsGivenUpCannotBeSentAndNothingOfItStays) {
  Taken t;
  for (const bool reissue : {false, true}) {
    const std::uint64_t ticket = reissue ? 8 : 4;
    {
      const BatchView view = t.take(ticket, "x");
      reissue ? t.arena->issue(ticket + 4) : t.arena->end(ticket);
      EXPECT_FALSE(t.worker->send(ticket));
      EXPECT_EQ(t.references(), 1u);
    }
    EXPECT_EQ(t.references(), 0u);
  }
  { EXPECT_TRUE(t.take(1, "y").block && t.worker->send(1)); }
  t.arena->issue(5);  // the slot of ticket 1
  EXPECT_EQ(t.references(), 0u);
  EXPECT_EQ(t.loop->receive(1).error().code, Code::kCancelled);
}

TEST(Arena, WhoReceivesLateNeverSeesAnotherBatch) {
  Taken t(2);
  std::atomic<std::uint64_t> sent = 0;
  std::atomic<bool> over = false;
  std::atomic<int> got = 0, missed = 0;
  std::jthread loop([&] {
    while (!over) {
      const std::uint64_t ticket = sent;
      const auto view = t.loop->receive(ticket);
      if (!view) {
        ++missed;
        continue;
      }
      ++got;
      EXPECT_EQ(as_text(view->items.at(0).data), std::to_string(ticket));
    }
  });
  for (std::uint64_t ticket = 1; ticket < 20'000 || got == 0 || missed == 0; ++ticket) {
    const BatchView view = t.take(ticket, std::to_string(ticket));
    EXPECT_TRUE(t.worker->send(ticket));
    sent = ticket;
    if (ticket % 3 == 0) t.arena->end(ticket);
  }
  over = true;
  loop.join();
  for (std::uint64_t ticket : {0, 1}) t.arena->issue((std::uint64_t{1} << 30) + ticket);
  EXPECT_LE(t.allocator.blocks(), 4u);  // nothing leaked
}

TEST(Arena, AWorkerLetsGoOfAllThatItHolds) {
  Taken t;
  std::vector<BatchView> held;
  for (std::uint64_t ticket = 0; ticket < 100; ++ticket) {
    BatchView view = t.take(ticket, "x");
    if (ticket % 2 == 0) held.push_back(std::move(view));
  }
  EXPECT_GE(t.allocator.blocks(), 50u);
  t.worker->release();
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(t.allocator.allocate(100));
  EXPECT_LE(t.allocator.blocks(), 52u);
  held.clear();  // releases nothing twice
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(t.allocator.allocate(100));
  EXPECT_GE(t.allocator.blocks(), 100u);
}

TEST(Arena, EachHasAnIdentity) {
  const auto one = Arena::create(1).value(), other = Arena::create(1).value();
  EXPECT_NE(one->identity(), other->identity());
  EXPECT_EQ(FeedReader::attach(one->fd()).value()->identity(), one->identity());
}

TEST(Arena, TicketsWrapInTheWord) {
  const std::uint64_t old = (std::uint64_t{1} << 28) - 1, young = std::uint64_t{1} << 28;
  EXPECT_EQ(Arena::phase_of(Arena::word_of(young, Phase::kReady), young), Phase::kReady);
  EXPECT_EQ(Arena::phase_of(Arena::word_of(young, Phase::kReady), old), std::nullopt);
  EXPECT_EQ(Arena::phase_of(Arena::word_of(old, Phase::kReady), young), Phase::kIdle);
}

TEST(Arena, AForkedWorkerAndOneWithTheDescriptorRead) {
  auto arena = Arena::create(4).value();
  BlockAllocator allocator(arena, 1_MiB);
  auto reader = make_feed_reader(arena);
  arena->issue(0);
  arena->issue(1);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto first = reader->wait(0, std::chrono::seconds(10));
    auto attached = FeedReader::attach(arena->fd()).value();
    const auto second = attached->wait(1, std::chrono::seconds(10));
    const bool good = first && second && as_text(first->items[0].data) == "zero" &&
                      as_text(second->items[0].data) == "one";
    ::_exit(good ? 0 : 1);
  }
  std::this_thread::sleep_for(milliseconds(20));
  arena->publish(1, 0, 1, a_block(allocator, *arena, "one"));
  arena->publish(0, 0, 0, a_block(allocator, *arena, "zero"));
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Arena, AViewThatAForkCopiedDoesNotReleaseTheBlock) {
  auto arena = Arena::create(4).value();
  BlockAllocator allocator(arena, 1_MiB);
  auto reader = make_feed_reader(arena);
  arena->issue(0);
  const auto block = a_block(allocator, *arena, "x");
  arena->publish(0, 0, 0, block);
  auto view = std::make_unique<BatchView>(reader->wait(0, milliseconds(1)).value());
  const pid_t child = ::fork();
  if (child == 0) {
    view.reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(arena->block(block).references.load(), 1u);
}

TEST(BlockAllocator, KeepsNoMoreFreePagesThanItsLimit) {
  auto arena = Arena::create(1).value();
  BlockAllocator allocator(arena, 1_MiB);
  std::vector<std::uint64_t> held;
  for (int i = 0; i < 8; ++i) held.push_back(allocator.allocate(512 << 10).value());
  EXPECT_GE(allocator.touched(), 4_MiB);  // in use: the consumer's
  for (const auto block : held) arena->drop_reference(block);
  allocator.trim();
  EXPECT_LE(allocator.touched(), 1_MiB);
  const std::size_t blocks = allocator.blocks();
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(allocator.allocate(512 << 10));
  EXPECT_EQ(allocator.blocks(), blocks);  // address space is used again
}

TEST(BlockAllocator, GivesBackWhatExceedsItsLimitAlthoughBlocksAreUsedAgain) {
  auto arena = Arena::create(1).value();
  BlockAllocator allocator(arena, 1_MiB);
  std::vector<std::uint64_t> held;
  for (int i = 0; i < 8; ++i) held.push_back(allocator.allocate(512 << 10).value());
  for (const auto block : held) arena->drop_reference(block);
  EXPECT_TRUE(allocator.allocate(512 << 10));
  EXPECT_LE(allocator.touched(), 1_MiB);
}

TEST(BlockAllocator, GrowsPastTheArenaOnlyAsAnError) {
  auto arena = Arena::create(1).value();
  BlockAllocator allocator(arena, 1_MiB);
  EXPECT_EQ(allocator.allocate(arena->size()).error().code, Code::kNoSpace);
}

TEST(Arena, OtherMemoryIsRefused) {
  io::Fd fd = make_sparse_memory("other", 1 << 20).value();
  EXPECT_EQ(FeedReader::attach(fd).error().code, Code::kVersion);
}

TEST(ForkMark, IsWipedInTheChild) {
  ForkMark mark;
  EXPECT_TRUE(mark.in_maker());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(mark.in_maker() ? 1 : 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace quiver::cache
