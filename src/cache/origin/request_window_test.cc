#include "cache/origin/request_window.h"

#include <gtest/gtest.h>

#include <atomic>
#include <list>
#include <thread>

namespace quiver::cache {
namespace {

using std::chrono::milliseconds;
using Outcome = RequestWindow::Outcome;
using Slot = RequestWindow::Slot;

struct RequestWindowTest : ::testing::Test {
  ManualClock clock;
  RequestWindow window{clock};
  Waiter waiter = [this](milliseconds time, std::stop_token) {
    clock.advance(time);
    return true;
  };
  Slot begin() { return std::move(*window.begin(waiter, {})); }
  void ask(Outcome outcome, milliseconds round_trip = milliseconds(10)) {
    Slot slot = begin();
    clock.advance(round_trip);
    slot.end(outcome);
  }
  double seconds() const {
    return std::chrono::duration<double>(clock.now().time_since_epoch()).count();
  }
};

TEST_F(RequestWindowTest, DoublesEachRoundTripUntilTheFirstRefusal) {
  for (const double expected : {16.0, 32.0, 64.0, 128.0, 128.0}) {
    std::vector<Slot> round;
    const int many = static_cast<int>(window.window());
    for (int i = 0; i < many; ++i) round.push_back(begin());
    clock.advance(milliseconds(10));
    for (Slot& slot : round) slot.end(Outcome::kAnswered);
    EXPECT_EQ(window.window(), expected);
  }
}

TEST_F(RequestWindowTest, IsHalvedOncePerRoundTripHoweverManyAreRefused) {
  for (const double expected : {4.0, 2.0, 1.0, 0.5}) {
    std::vector<Slot> round;
    for (int i = 0; i < std::max(1, static_cast<int>(window.window())); ++i) {
      round.push_back(begin());
    }
    clock.advance(milliseconds(10));
    for (Slot& slot : round) {
      slot.end(Outcome::kThrottled);
      clock.advance(milliseconds(1));
    }
    EXPECT_EQ(window.window(), expected);
  }
}

TEST_F(RequestWindowTest, WhatBreaksForOtherReasonsChangesNothing) {
  for (int i = 0; i < 100; ++i) ask(Outcome::kBroken);
  { const Slot left = begin(); }
  EXPECT_EQ(window.window(), RequestWindow::kFirst);
}

TEST_F(RequestWindowTest, GrowsBackSlowlyToWhereItWasCutAndFasterBeyond) {
  for (int i = 0; i < 24; ++i) ask(Outcome::kAnswered);
  ask(Outcome::kThrottled);
  const double start = seconds();
  double before = window.window();
  EXPECT_EQ(before, 16);
  while (seconds() < start + 4.9) {
    ask(Outcome::kAnswered);
    EXPECT_GE(window.window(), before);
    EXPECT_LT(window.window(), before + 0.2);  // no leap
    before = window.window();
    EXPECT_LE(before, 32);
  }
  EXPECT_NEAR(before, 32, 0.1);
  while (seconds() < start + 12) ask(Outcome::kAnswered);
  EXPECT_GT(window.window(), 64);
}

TEST_F(RequestWindowTest, IdleTimeProvesNothing) {
  ask(Outcome::kThrottled);
  EXPECT_EQ(window.window(), 4);
  ask(Outcome::kAnswered);
  clock.advance(std::chrono::hours(1));
  ask(Outcome::kAnswered);
  EXPECT_LE(window.window(), 4.1);
}

TEST_F(RequestWindowTest, BelowOneItPauses) {
  for (int i = 0; i < 5; ++i) ask(Outcome::kThrottled);
  ASSERT_EQ(window.window(), 0.25);
  ask(Outcome::kAnswered, milliseconds(100));  // the first after the cut is not held up
  const double start = seconds();
  ask(Outcome::kAnswered, milliseconds(100));
  ask(Outcome::kAnswered, milliseconds(100));
  EXPECT_GT(seconds() - start, 0.2);  // at least two round trips each, not one
}

TEST_F(RequestWindowTest, NoPauseIsLongerThanItsBound) {
  for (int i = 0; i < 100; ++i) ask(Outcome::kThrottled, milliseconds(500));
  const double start = seconds();
  for (int i = 0; i < 4; ++i) ask(Outcome::kAnswered, milliseconds(500));
  EXPECT_LE(seconds() - start, 4 * 5.6);
  for (int i = 0; i < 200; ++i) ask(Outcome::kAnswered, milliseconds(500));
  EXPECT_GE(window.window(), 16);  // a store that has recovered is asked again
}

TEST_F(RequestWindowTest, RetryAfterHoldsEverybodyWithinBounds) {
  for (const auto& [wish, held] : {std::pair{7, 7}, std::pair{3000, 20}}) {
    Slot slot = begin();
    slot.end(Outcome::kThrottled, std::chrono::seconds(wish));
    const double start = seconds();
    ask(Outcome::kAnswered, milliseconds(0));
    EXPECT_NEAR(seconds() - start, held, 0.01);
  }
}

TEST_F(RequestWindowTest, AStopEndsTheWaitForASlot) {
  std::vector<Slot> all;
  for (int i = 0; i < 8; ++i) all.push_back(begin());
  std::stop_source stop;
  std::jthread other([&] { stop.request_stop(); });
  const auto slot = window.begin(waiter, stop.get_token());
  ASSERT_FALSE(slot);
  EXPECT_EQ(slot.error().code, Code::kCancelled);
}

TEST_F(RequestWindowTest, NeverMoreSlotsThanTheWindowFromAnyThreads) {
  std::atomic<int> out = 0, most = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 24; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        Slot slot = begin();
        const int now = ++out;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::yield();
        --out;
        slot.end(Outcome::kBroken);  // the window stays as it is
      }
    });
  }
  threads.clear();
  EXPECT_LE(most, 8);
  EXPECT_EQ(out, 0);
}

// A store that bears `rate` requests a second, with a second's quarter saved up, and answers after
// 4 ms. 16 readers ask it for `objects`, each coming back after a back-off when it was refused.
struct Epoch {
  int refused = 0;
  double seconds = 0;
};
Epoch epoch(double rate, int objects, bool paced) {
  ManualClock clock;
  RequestWindow window(clock);
  const Instant start = clock.now();
  Instant last = start;
  double tokens = rate / 4;
  Epoch result;
  struct Asked {
    Instant due;
    std::optional<Slot> slot;
  };
  std::list<Asked> under_way;
  int left = objects;
  const auto step = [&](milliseconds time) {
    clock.advance(time);
    for (auto it = under_way.begin(); it != under_way.end();) {
      if (it->due > clock.now()) {
        ++it;
        continue;
      }
      const double passed = std::chrono::duration<double>(clock.now() - last).count();
      tokens = std::min(rate / 4, tokens + passed * rate);
      last = clock.now();
      const bool good = tokens >= 1;
      if (good) tokens -= 1;
      (good ? left : result.refused) += good ? -1 : 1;
      if (it->slot) it->slot->end(good ? Outcome::kAnswered : Outcome::kThrottled);
      it = under_way.erase(it);
    }
  };
  const Waiter waiter = [&](milliseconds time, std::stop_token) {
    for (; time.count() > 0; --time) step(milliseconds(1));
    return true;
  };
  while (left > 0) {
    const double room = paced ? std::max(1.0, window.window()) : 16;
    while (static_cast<double>(under_way.size()) < std::min(16.0, room)) {
      std::optional<Slot> slot;
      if (paced) slot.emplace(std::move(*window.begin(waiter, {})));
      under_way.push_back({clock.now() + milliseconds(4), std::move(slot)});
    }
    step(milliseconds(1));
  }
  result.seconds = std::chrono::duration<double>(clock.now() - start).count();
  return result;
}

TEST(RequestWindow, SettlesNearWhatTheStoreBears) {
  for (const double rate : {30.0, 200.0, 1000.0}) {
    const int objects = static_cast<int>(20 * rate);
    const Epoch paced = epoch(rate, objects, true), unpaced = epoch(rate, objects, false);
    EXPECT_LT(paced.refused, objects / 10) << rate;
    EXPECT_LT(paced.refused, 200) << rate;
    EXPECT_LT(paced.seconds, 20 * 1.25) << rate;
    EXPECT_GT(unpaced.refused, 2 * objects) << rate;  // or the test would show nothing
  }
}

}  // namespace
}  // namespace quiver::cache
