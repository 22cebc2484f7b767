// Items that come in pieces.
#include <gtest/gtest.h>

#include "cache/store/store_testing.h"
#include "io/faulty_files.h"

namespace quiver::cache {
namespace {

using namespace std::chrono_literals;

struct StorePiecesTest : StoreFixture {
  const std::string bytes = content(1, 300'000);
  const Sha256 hash = sha256(as_bytes(bytes));
  const Lane lane{"pins", true, 7};

  static Status feed(IncomingItem& item, std::string_view text, std::size_t step = 70'000) {
    for (std::size_t at = 0; at < text.size(); at += step) {
      if (Status ok = item.add(as_bytes(text.substr(at, step))); !ok) return ok;
    }
    return {};
  }
  void expect_nothing_stays(Store& store) {
    EXPECT_TRUE(store.wait_until_freed(5s));
    EXPECT_TRUE(store.segments().empty());
    EXPECT_FALSE(has(store, bytes));
    EXPECT_TRUE(std::filesystem::is_empty(options.directory + "/segments"));
    EXPECT_LT(store.stats().allocated, Bytes(200'000));
  }
};

TEST_F(StorePiecesTest, IsFoundWhenAllOfItIsThere) {
  {
    auto store = open();
    auto item = store->begin_item(Bytes(bytes.size())).value();
    EXPECT_GE(store->stats().allocated, Bytes(300'000)) << "its room is taken at once";
    ASSERT_TRUE(feed(*item, bytes));
    EXPECT_FALSE(has(*store, bytes));
    const auto at = item->finish(lane, hash);
    ASSERT_TRUE(at) << at.error().message;
    item.reset();
    EXPECT_EQ(store->lane_of(at->segment), lane);
    EXPECT_TRUE(has(*store, bytes));
    EXPECT_FALSE(store->segments().front().open);
    EXPECT_GE(store->stats().allocated, disk_usage(options.directory));
    EXPECT_NE(put(*store, content(2, 10), lane)->segment, at->segment);
  }
  auto store = open();
  EXPECT_TRUE(has(*store, bytes));
  EXPECT_EQ(store->lane_of(store->find(hash)->segment), lane);
}

TEST_F(StorePiecesTest, WhatIsNotWholeOrNotRightLeavesNothing) {
  auto store = open();
  { ASSERT_TRUE(feed(*store->begin_item(Bytes(bytes.size())).value(), bytes.substr(0, 200'000))); }
  expect_nothing_stays(*store);
  {
    auto shorter = store->begin_item(Bytes(bytes.size() + 1)).value();
    ASSERT_TRUE(feed(*shorter, bytes));
    EXPECT_EQ(shorter->finish(lane, hash).error().code, Code::kCorrupt);
  }
  {
    auto other = store->begin_item(Bytes(bytes.size())).value();
    ASSERT_TRUE(feed(*other, content(2, bytes.size())));
    EXPECT_EQ(other->finish(lane, hash).error().code, Code::kCorrupt);
  }
  {
    auto longer = store->begin_item(Bytes(100)).value();
    EXPECT_EQ(feed(*longer, bytes).error().code, Code::kInvalid);
  }
  expect_nothing_stays(*store);
}

TEST_F(StorePiecesTest, KeepsToTheBudgetAndLeavesWhenItIsEvicted) {
  options.disk_limit = 512_KiB;
  auto store = open();
  auto item = store->begin_item(Bytes(bytes.size())).value();
  EXPECT_EQ(store->begin_item(Bytes(bytes.size())).error().code, Code::kNoSpace);
  ASSERT_TRUE(item->add(as_bytes(bytes).first(100'000)));
  ASSERT_EQ(store->segments().size(), 1u);
  EXPECT_GT(store->evict(store->segments().front().id), Bytes(300'000));
  EXPECT_EQ(item->add(as_bytes(bytes).first(100'000)).error().code, Code::kNoSpace);
  item.reset();
  expect_nothing_stays(*store);
}

TEST_F(StorePiecesTest, OfTwoTheFasterHasThePlace) {
  auto store = open();
  auto item = store->begin_item(Bytes(bytes.size())).value();
  ASSERT_TRUE(feed(*item, bytes));
  const auto first = put(*store, bytes);
  EXPECT_EQ(item->finish(lane, hash).value(), *first);
  item.reset();
  EXPECT_TRUE(store->wait_until_freed(5s));
  EXPECT_EQ(store->segments().size(), 1u);
  EXPECT_TRUE(has(*store, bytes));
}

TEST_F(StorePiecesTest, KilledOrFailedInTheMiddleItIsGone) {
  io::FaultyFiles faulty(files);
  {
    auto store = open_with(faulty);
    auto item = store->begin_item(Bytes(bytes.size())).value();
    ASSERT_TRUE(feed(*item, bytes));
    faulty.add({.op = io::FileOp::kPwrite, .path = ".idx", .shorten = 20});
    EXPECT_FALSE(item->finish(lane, hash));
    item.reset();
    faulty.clear();
    expect_nothing_stays(*store);
    auto again = store->begin_item(Bytes(bytes.size())).value();
    ASSERT_TRUE(feed(*again, bytes));
    std::filesystem::copy(options.directory, options.directory + "-killed",
                          std::filesystem::copy_options::recursive);
  }
  options.directory += "-killed";
  expect_nothing_stays(*open());
}

}  // namespace
}  // namespace quiver::cache
