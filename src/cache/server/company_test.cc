// Jobs beside other jobs that are many, lie, or may not see what they ask for; and clocks that
// leap.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <nlohmann/json.hpp>

#include "cache/client/feed.h"
#include "cache/policy/staging.h"
#include "cache/server/testing/daemon_fixture.h"

namespace quiver::cache {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::DaemonTest;
using testing::QuietLog;
using testing::RawClient;
using testing::TestData;

// Leaps where the test says so; goes on as the real one does in between.
class LeapingClock final : public Clock {
 public:
  Instant now() const override { return real_.now() + ahead_.load(); }
  WallTime wall() const override { return real_.wall() + wall_ahead_.load(); }
  void leap(Duration by) { ahead_ = ahead_.load() + by; }
  void set_wall(Duration ahead) { wall_ahead_ = ahead; }

 private:
  RealClock real_;
  std::atomic<Duration> ahead_{Duration(0)}, wall_ahead_{Duration(0)};
};

// What a training process is: a dataset with a session of its own, and a feed over it.
class Job {
 public:
  Job(const TestData& data, const std::string& manifest, const std::string& socket,
      const std::string& cache, Environment environment, std::uint32_t batch)
      : data_(data) {
    DatasetOptions options;
    options.manifest_path = manifest;
    options.settings.socket = socket;
    options.settings.cache_dir = cache;
    options.name = "job";
    dataset = Dataset::open(options, environment).value();
    FeedOptions feeding;
    feeding.batch_size = batch;
    feeding.shuffle = true;
    feeding.read_ahead = 2;
    feeding.reader_threads = 1;
    feeding.memory_limit = 16_MiB;
    feed_ = Feed::create(dataset, feeding, environment).value();
  }

  // True when each item came once, with its bytes.
  bool run_epoch() {
    std::vector<int> times(data_.contents.size());
    if (const Status begun = feed_->begin_epoch(); !begun) {
      ADD_FAILURE() << begun.error().message;
      return false;
    }
    std::deque<std::uint64_t> tickets;
    for (;;) {
      while (tickets.size() < 2) {
        const auto ticket = feed_->issue();
        if (!ticket) break;
        tickets.push_back(*ticket);
      }
      if (tickets.empty()) break;
      if (!take(tickets.front(), times)) return false;
      tickets.pop_front();
    }
    return times == std::vector<int>(times.size(), 1);
  }
  EpochReport report() const { return feed_->report(); }

  std::shared_ptr<Dataset> dataset;
  Duration longest{};  // wait for a batch

 private:
  bool take(std::uint64_t ticket, std::vector<int>& times) {
    const RealClock clock;
    const Instant asked = clock.now();
    const auto batch = feed_->reader()->wait(ticket, seconds(30));
    if (!batch) {
      ADD_FAILURE() << batch.error().message;
      return false;
    }
    longest = std::max(longest, clock.now() - asked);
    for (const FedItem& item : batch->items) {
      EXPECT_FALSE(item.failed) << item.error;
      EXPECT_TRUE(as_text(item.data) == data_.contents[item.id.value]) << item.id.value;
      ++times[item.id.value];
    }
    feed_->delivered(ticket, 0, {});
    return true;
  }

  const TestData& data_;
  std::unique_ptr<Feed> feed_;
};

class Company : public DaemonTest {
 protected:
  std::unique_ptr<Job> job_over(const TestData& data, std::uint32_t batch = 4) {
    const std::string manifest = folder + "/" + public_id(data.root) + ".qvm";
    if (!std::filesystem::exists(manifest)) std::ofstream(manifest) << data.file;
    return std::make_unique<Job>(data, manifest, socket(), cache(),
                                 Environment{files, *http, job_clock, job_log}, batch);
  }
  nlohmann::json dataset_of(RawClient& client) {
    return nlohmann::json::parse(client.status())["datasets"][0];
  }

  LeapingClock job_clock;
  QuietLog job_log;
};

TEST_F(Company, AsManyJobsAsThereMayBeAllGetEachItemOnceAndOneMoreDoesToo) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the arenas of 65 jobs do not fit into the address space that is left";
#endif
  const TestData data(folder + "/data", 60, 5'000);
  start();
  std::atomic<int> right = 0;
  std::vector<std::unique_ptr<Job>> jobs;
  for (std::size_t i = 0; i < StagingPlan::kMaxJobs; ++i) jobs.push_back(job_over(data));
  {
    std::vector<std::jthread> loops;
    for (auto& job : jobs) {
      loops.emplace_back([&right, &job] { right += job->run_epoch() && job->run_epoch() ? 1 : 0; });
    }
  }
  EXPECT_EQ(right, static_cast<int>(StagingPlan::kMaxJobs));
  RawClient watcher(socket());
  EXPECT_EQ(dataset_of(watcher)["jobs"].size(), StagingPlan::kMaxJobs);
  EXPECT_EQ(dataset_of(watcher)["origin_reads"], 60);
  EXPECT_TRUE(sink.warnings().empty()) << ::testing::PrintToString(sink.warnings());
  EXPECT_TRUE(job_log.warnings().empty()) << ::testing::PrintToString(job_log.warnings());

  EXPECT_TRUE(job_over(data)->run_epoch());
  ASSERT_EQ(sink.warnings().size(), 1u) << ::testing::PrintToString(sink.warnings());
  EXPECT_NE(sink.warnings()[0].find("at most 64 jobs"), std::string::npos) << sink.warnings()[0];
}

// It says that it took everything, that it is the fastest of all, and then whatever comes.
class Liar {
 public:
  Liar(const std::string& socket, const TestData& data)
      : items_(static_cast<std::uint32_t>(data.contents.size())), client_(socket) {
    if (!client_.open(data)) return;
    board_ = client_.join(200, items_);
    const io::Fd fd(::dup(client_.received[0].get()));
    thread_ = std::jthread([this, raw = io::Fd(::dup(fd.get()))](std::stop_token stop) {
      std::mt19937_64 random(1);
      while (!stop.stop_requested()) lie(random, raw.get());
    });
  }
  bool joined() const { return board_.has_value(); }

 private:
  void lie(std::mt19937_64& random, int raw) {
    const std::vector<std::uint64_t> none((items_ + 63) / 64), all(none.size(), ~std::uint64_t{0});
    BoardEpoch epoch;
    epoch.epoch = random() % 3;
    epoch.order_seed = random();
    epoch.part = static_cast<std::uint32_t>(random());
    epoch.strict = random() % 4 == 0;
    board_->begin(epoch, random() % 2 != 0 ? all : none, random() % 2 != 0 ? all : none);
    board_->set_pace({.items_per_second = 1e300, .steps = 50, .error = 0}, UINT32_MAX);
    for (int i = 0; i < 20; ++i)
      board_->take(ItemId(static_cast<std::uint32_t>(random() % items_)));
    std::this_thread::sleep_for(milliseconds(random() % 15));
    for (int i = 0; i < 8; ++i) {  // over all of the board, its header too
      const std::uint64_t noise = random();
      (void)!::pwrite(raw, &noise, sizeof noise, static_cast<off_t>(random() % 600));
    }
    (void)!::ftruncate(raw, 0);
    std::this_thread::sleep_for(milliseconds(random() % 15));
  }

  const std::uint32_t items_;
  RawClient client_;
  Result<JobBoardWriter> board_ = error(Code::kUnreachable, "not joined");
  std::jthread thread_;
};

TEST_F(Company, ABoardOfNonsenseAndItemsThatNobodyTookHurtsNoOtherJob) {
  const TestData data(folder + "/data", 60, 20'000);
  settings.disk_limit.size = Bytes(900'000);
  start();
  const auto job = job_over(data);
  const Liar liar(socket(), data);
  ASSERT_TRUE(liar.joined());
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT_TRUE(job->run_epoch());
  EXPECT_LT(job->longest, seconds(3));
  EXPECT_TRUE(job_log.warnings().empty()) << ::testing::PrintToString(job_log.warnings());
}

TEST_F(Company, WhoClaimsARootWithoutItsManifestGetsNoByte) {
  const TestData secret(folder + "/secret", 20, 4'000, 7), own(folder + "/own", 20, 4'000, 8);
  start();
  RawClient owner(socket()), thief(socket());
  ASSERT_TRUE(owner.open(secret));
  ASSERT_TRUE(owner.fetch({0, 1, 2, 3}));
  const std::uint32_t segment = owner.view->word(ItemId(0)).segment().value;

  std::string one_hash_off = secret.file;
  const auto& hash = sha256(as_bytes(secret.contents[5])).bytes;
  const auto at =
      one_hash_off.find(std::string(reinterpret_cast<const char*>(hash.data()), hash.size()));
  ASSERT_NE(at, std::string::npos);
  one_hash_off[at] = static_cast<char>(one_hash_off[at] ^ 1);
  // The true manifest's head, which has all that can be told without knowing the items.
  std::string head_of_it = own.file;
  head_of_it.replace(0, 128, secret.file, 0, 128);
  const auto claim = [&](const std::string& file) {
    OpenRequest request;
    request.root = secret.root;
    request.origin.url = own.url;
    const io::Fd fd = io::make_sealed_copy("manifest", as_bytes(file)).value();
    return thief.call<OpenReply>(Request::kOpen, request, {fd.get()});
  };
  for (const std::string& file :
       {own.file, one_hash_off, head_of_it, secret.file.substr(0, secret.file.size() / 2),
        secret.file.substr(0, 128), std::string(1, '\0')}) {
    const auto opened = claim(file);
    ASSERT_FALSE(opened) << file.size();
    EXPECT_TRUE(opened.error().code == Code::kInvalid || opened.error().code == Code::kCorrupt)
        << opened.error().message;
    EXPECT_TRUE(thief.received.empty());
    EXPECT_EQ(opened.error().message.find("item"), std::string::npos) << opened.error().message;
  }
  EXPECT_FALSE(thief.call<OpenReply>(Request::kOpen, OpenRequest{secret.root, {}}));
  // Nor by the numbers that another session has.
  EXPECT_FALSE(thief.fetch({0}));
  EXPECT_FALSE(thief.call<SegmentsReply>(Request::kSegments, SegmentsRequest{0, {segment}}));
  EXPECT_FALSE(thief.join(1, 20));
  ASSERT_TRUE(thief.open(own));
  EXPECT_EQ(thief.view->word(ItemId(0)).residency(), Residency::kAbsent);
  EXPECT_EQ(dataset_of(owner)["jobs"].size(), 0u);
}

TEST_F(Company, AnErrorNamesNoPlaceThatItsReaderDoesNotKnow) {
  const TestData mine(folder + "/mine", 4, 1000), theirs(folder + "/theirs", 4, 1000);
  ASSERT_EQ(mine.root, theirs.root);
  start();
  RawClient me(socket()), they(socket());
  ASSERT_TRUE(me.open(mine));
  ASSERT_TRUE(they.open(theirs));
  std::filesystem::remove(folder + "/mine/item3");
  std::filesystem::remove(folder + "/theirs/item3");
  for (RawClient* const one : {&me, &they}) {
    const auto reply = one->fetch({3});
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->results[0].code, static_cast<std::uint16_t>(Code::kNotFound));
    const char* const other = one == &me ? "/theirs" : "/mine";
    EXPECT_EQ(reply->results[0].message.find(other), std::string::npos)
        << reply->results[0].message;
  }
}

TEST_F(Company, AShareThatChangesWhileSegmentsAreEvictedSlowlyCostsNoItem) {
  const TestData data(folder + "/data", 60, 20'000, 7), other(folder + "/other", 60, 20'000, 8);
  settings.disk_limit.size = Bytes(1'300'000);
  start();
  const auto job = job_over(data);
  faulty.add(
      {.op = io::FileOp::kTruncate, .path = "/segments/", .times = 40, .stall = milliseconds(50)});
  std::atomic<int> changes = 0;
  std::jthread guest([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      RawClient client(socket());
      EXPECT_TRUE(client.open(other));
      EXPECT_TRUE(client.fetch({0, 1, 2, 3, 4, 5, 6, 7}));
      ++changes;
    }
  });
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_TRUE(job->run_epoch());
    EXPECT_LE(on_disk(), *settings.disk_limit.size);
  }
  EXPECT_GT(changes, 3);
  EXPECT_GT(faulty.injected(), 3u);
  EXPECT_LT(job->longest, seconds(3));
  EXPECT_TRUE(job_log.warnings().empty()) << ::testing::PrintToString(job_log.warnings());
}

// The daemon has a clock of its own, as one in another container may have.
class Leaps : public Company {
 protected:
  LeapingClock daemon_clock;
};

TEST_F(Leaps, OfClocksStopNobodyAndNobodyIsTakenForDeadForLong) {
  const TestData data(folder + "/data", 60, 20'000);
  settings.disk_limit.size = Bytes(900'000);
  start(daemon_clock);
  const auto job = job_over(data);
  EXPECT_TRUE(job->run_epoch());
  std::atomic<int> leaps = 0;
  std::jthread leaper([&] {
    for (int i = 0; i < 12; i = ++leaps) {
      i % 2 == 0 ? daemon_clock.leap(hours(1)) : job_clock.leap(hours(3));
      daemon_clock.set_wall(i % 3 == 0 ? hours(1) : -hours(1));
      job_clock.set_wall(i % 3 == 0 ? -hours(1) : hours(1));
      std::this_thread::sleep_for(milliseconds(70));
    }
  });
  while (leaps < 12) ASSERT_TRUE(job->run_epoch());
  leaper = {};
  EXPECT_LT(job->longest, seconds(3));
  // The job's clock is far ahead of the daemon's now, and its session stays all the same.
  EXPECT_TRUE(eventually([&] { return job->dataset->view() != nullptr; }));
  const auto session = job->dataset->generation();
  for (int i = 0; i < 12; ++i) {
    EXPECT_NE(job->dataset->view(), nullptr);
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_EQ(job->dataset->generation(), session);
  // A session that is lost between two epochs leaves its rank's place to the next one.
  job_clock.leap(hours(48));
  (void)job->dataset->view();
  EXPECT_TRUE(job->run_epoch());
  stop();
  EXPECT_TRUE(job->run_epoch());
  EXPECT_LT(job->longest, seconds(3));
  EXPECT_TRUE(job->report().degraded);
}

}  // namespace
}  // namespace quiver::cache
