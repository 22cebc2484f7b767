#include "cache/client/job_progress.h"

#include <gtest/gtest.h>

namespace quiver::cache {
namespace {

RankState start(std::uint32_t rank = 0, std::uint32_t world = 1) {
  RankState state(10);
  state.mode = "substitute";
  state.rank = rank;
  state.world = world;
  return state;
}

TEST(JobProgress, TheEndOfAnEpochIsTheStartOfTheNext) {
  JobProgress progress(start());
  progress.begin(4, 0, 2, ItemSet(10), ItemSet(10, true));
  EXPECT_EQ(progress.state().epoch, 4u);
  progress.deliver(1, {ItemId(1), ItemId(2)});  // in any order
  EXPECT_EQ(progress.state().step, 1u);
  EXPECT_EQ(progress.state().delivered.count(), 2u);
  progress.deliver(0, {ItemId(3)});
  EXPECT_TRUE(progress.finished());
  EXPECT_EQ(progress.state().epoch, 5u);
  EXPECT_EQ(progress.state().step, 0u);
  EXPECT_EQ(progress.state().delivered.count(), 0u);
  EXPECT_NE(progress.state().chain, Sha256{});
}

TEST(JobProgress, PadsAreCountedSoThatTheRanksFitTogether) {
  ItemSet even(10), odd(10);
  for (std::uint32_t i = 0; i < 10; ++i) (i % 2 == 0 ? even : odd).insert(ItemId(i));
  JobProgress first(start(0, 2)), second(start(1, 2));
  first.begin(0, 0, 5, ItemSet(10), even);
  second.begin(0, 0, 5, ItemSet(10), odd);
  EXPECT_EQ(first.deliver(0, {ItemId(0), ItemId(2)}), 0u);
  EXPECT_EQ(second.deliver(0, {ItemId(1), ItemId(0)}), 1u);  // the other rank's
  const auto job = merge({first.state(), second.state()});
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->delivered.count(), 3u);
}

TEST(JobProgress, OnlyAJobOfOneRankGoesOnWithItsChain) {
  JobProgress before(start()), after(start()), more(start(0, 2));
  for (JobProgress* p : {&before, &more}) p->begin(0, 0, 4, ItemSet(10), ItemSet(10, true));
  before.deliver(0, {ItemId(1)});
  more.deliver(0, {ItemId(1)});
  const JobState job = merge({before.state()}).value();
  after.load(job);
  EXPECT_EQ(after.state().chain, before.state().chain);
  more.load(job);
  EXPECT_EQ(more.state().chain, Sha256{});
}

TEST(JobProgress, AResumedEpochGoesOnWithItsSteps) {
  JobState job{9, 3, 10, ItemSet(10), 7};
  job.delivered.insert(ItemId(5));
  JobProgress progress(start());
  progress.load(job);
  EXPECT_EQ(progress.seed(), 9u);
  EXPECT_EQ(progress.state().epoch, 3u);
  EXPECT_EQ(progress.state().step, 7u);
  EXPECT_TRUE(progress.state().delivered_before.contains(ItemId(5)));
  progress.begin(3, 7, 2, job.delivered, ItemSet(10, true));
  progress.deliver(7, {ItemId(6)});
  EXPECT_EQ(progress.state().step, 8u);
  EXPECT_EQ(progress.state().delivered_before, job.delivered);
}

}  // namespace
}  // namespace quiver::cache
