#include "cache/client/dataset.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "cache/client/daemon_link.h"
#include "cache/client/digest.h"
#include "cache/client/testing/scripted_daemon.h"
#include "io/test_directory.h"

namespace quiver::cache {
namespace {

constexpr std::uint32_t kItems = 30;

std::string text_of(std::uint32_t i) {
  return std::string(100 + i * 37, static_cast<char>('a' + i % 26));
}

class NoHttp final : public io::HttpTransport {
 public:
  Result<io::HttpResponse> perform(const io::HttpRequest&, const io::BodySink&,
                                   std::stop_token) override {
    return error(Code::kUnreachable, "there is no network in this test");
  }
};

// A folder of files, its manifest, and a daemon when the test makes one.
class DatasetTest : public testing::Test {
 protected:
  DatasetTest() {
    std::filesystem::create_directory(dir / "data");
    std::filesystem::create_directory(dir / "cache");
    for (std::uint32_t i = 0; i < kItems; ++i) {
      std::ofstream(dir / fmt::format("data/{:02}", i)) << text_of(i);
    }
    DigestOptions o;
    o.origin.url = dir / "data";
    o.layout = Layout::kFiles;
    o.manifest_path = dir / "m.qvm";
    const auto report = digest(o, environment, {}, {});
    if (!report) ADD_FAILURE() << report.error().message;
    manifest = Manifest::open(files, o.manifest_path, true).value();
    options.manifest_path = o.manifest_path;
    options.settings.cache_dir = dir / "cache";
  }

  void start() {
    daemon.reset();
    daemon = std::make_unique<ScriptedDaemon>(dir / "cache", manifest,
                                              [](ItemId id) { return text_of(id.value); });
  }
  std::shared_ptr<Dataset> open() { return Dataset::open(options, environment).value(); }
  // Reads and compares.
  static Result<Tier> read(Dataset& dataset, std::uint32_t id) {
    std::string out(dataset.manifest().item(ItemId(id)).length.value, '\0');
    auto tier = dataset.read(ItemId(id), std::as_writable_bytes(std::span(out)), {});
    EXPECT_TRUE(!tier || out == text_of(id));
    return tier;
  }

  io::TestDirectory dir;
  io::RealFiles files;
  NoHttp http;
  RealClock clock;
  QuietLog log;
  Environment environment{files, http, clock, log};
  std::shared_ptr<const Manifest> manifest;
  DatasetOptions options;
  void TearDown() override {
    if (!HasFailure()) return;
    for (const auto& line : log.warnings()) std::fprintf(stderr, "warned: %s\n", line.c_str());
  }
  std::unique_ptr<ScriptedDaemon> daemon;
};

TEST_F(DatasetTest, AHitAsksTheDaemonForNothingButTheDescriptorOnce) {
  start();
  for (std::uint32_t i = 0; i < 10; ++i) daemon->put(ItemId(i), 1, true);
  daemon->put(ItemId(10), 2, false);
  auto dataset = open();
  EXPECT_EQ(daemon->opens, 0);  // nothing before the first read
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(read(*dataset, i).value(), Tier::kPinned);
    EXPECT_EQ(read(*dataset, 10).value(), Tier::kStaged);
  }
  EXPECT_EQ(daemon->fetches, 0);
  EXPECT_EQ(daemon->segment_requests, 2);
  EXPECT_EQ(dataset->stats().items[static_cast<int>(Tier::kPinned)], 30u);
  EXPECT_EQ(dataset->generation(), 1u);
}

TEST_F(DatasetTest, AMissWaitsForTheDaemonsFetch) {
  start();
  auto dataset = open();
  Tier tier;
  std::string out(text_of(3).size(), '\0');
  EXPECT_FALSE(dataset->read_resident(ItemId(3), std::as_writable_bytes(std::span(out)), tier));
  EXPECT_EQ(read(*dataset, 3).value(), Tier::kFetched);
  EXPECT_EQ(read(*dataset, 3).value(), Tier::kStaged);
  dataset->want({ItemId(4), ItemId(5)});
  EXPECT_EQ(read(*dataset, 4).value(), Tier::kStaged);
}

TEST_F(DatasetTest, AnItemThatTheDaemonCannotFetchIsReadFromTheOrigin) {
  start();
  daemon->failing.with([](auto& f) { f.insert({3, 5}); });
  auto dataset = open();
  EXPECT_EQ(read(*dataset, 4).value(), Tier::kFetched);
  EXPECT_FALSE(dataset->degraded());
  EXPECT_EQ(read(*dataset, 3).value(), Tier::kDirect);
  EXPECT_EQ(dataset->stats().direct_origin_bytes, Bytes(text_of(3).size()));
  EXPECT_TRUE(dataset->degraded());
  EXPECT_EQ(read(*dataset, 5).value(), Tier::kDirect);
  ASSERT_EQ(log.warnings().size(), 1u);
  EXPECT_NE(log.warnings()[0].find("the daemon could not"), std::string::npos);
}

TEST_F(DatasetTest, WaitsWhileTheHeartBeatsAndReadsTheOriginWhenItStands) {
  start();
  daemon->answers_fetch = false;
  auto dataset = open();
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // longer than the limit
    daemon->answers_fetch = true;
  });
  EXPECT_EQ(read(*dataset, 1).value(), Tier::kFetched);
  later.join();
  daemon->answers_fetch = false;
  daemon->beating = false;
  const Instant began = clock.now();
  EXPECT_EQ(read(*dataset, 2).value(), Tier::kDirect);
  EXPECT_LT(clock.now() - began, std::chrono::milliseconds(1700));
  EXPECT_TRUE(dataset->degraded());
  EXPECT_EQ(log.warnings().size(), 1u);
}

TEST_F(DatasetTest, OutlivesItsDaemonAndJoinsTheNext) {
  start();
  for (std::uint32_t i = 0; i < 5; ++i) daemon->put(ItemId(i), 1, true);
  auto dataset = open();
  EXPECT_EQ(read(*dataset, 0).value(), Tier::kPinned);
  daemon.reset();
  EXPECT_EQ(read(*dataset, 1).value(), Tier::kPinned);  // what is here stays readable
  EXPECT_EQ(read(*dataset, 20).value(), Tier::kDirect);
  EXPECT_EQ(read(*dataset, 21).value(), Tier::kDirect);
  EXPECT_TRUE(dataset->degraded());
  EXPECT_EQ(dataset->view(), nullptr);
  EXPECT_EQ(log.warnings().size(), 1u);
  start();
  const Instant deadline = clock.now() + std::chrono::seconds(3);
  while (!dataset->view() && clock.now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_NE(dataset->view(), nullptr);
  EXPECT_EQ(dataset->generation(), 2u);
  EXPECT_FALSE(dataset->degraded());
  EXPECT_EQ(read(*dataset, 22).value(), Tier::kFetched);
}

TEST_F(DatasetTest, AnEvictedItemIsAMissNeverAWrongOne) {
  start();
  for (std::uint32_t i = 0; i < 5; ++i) daemon->put(ItemId(i), 1, true);
  auto dataset = open();
  EXPECT_EQ(read(*dataset, 0).value(), Tier::kPinned);
  daemon->evict(1);
  EXPECT_EQ(read(*dataset, 0).value(), Tier::kFetched);
  // The word is there and the bytes are gone: the daemon says "here", the origin has it.
  daemon->put(ItemId(6), 2, true);
  EXPECT_EQ(read(*dataset, 6).value(), Tier::kPinned);
  daemon->truncate(2);
  EXPECT_EQ(read(*dataset, 6).value(), Tier::kDirect);
  EXPECT_GE(dataset->stats().stale, 1u);
}

TEST_F(DatasetTest, WrongBytesAreAMissAndTheDaemonHearsOfThem) {
  start();
  daemon->put(ItemId(3), 1, true);
  daemon->garble(1);
  auto dataset = open();
  EXPECT_EQ(read(*dataset, 3).value(), Tier::kFetched);
  EXPECT_EQ(dataset->stats().corrupt, 1u);
  EXPECT_EQ(daemon->damages, 1);
  EXPECT_EQ(read(*dataset, 3).value(), Tier::kStaged);
}

TEST_F(DatasetTest, WrongBytesStayAMissHoweverOftenAndByWhomTheyAreRead) {
  start();
  daemon->drops_damaged = false;
  daemon->put(ItemId(3), 1, true);
  daemon->garble(1);
  auto dataset = open();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) EXPECT_EQ(read(*dataset, 3).value(), Tier::kDirect);
    });
  }
  threads.clear();
  EXPECT_EQ(dataset->stats().corrupt, 20u);
  EXPECT_TRUE(dataset->degraded());
  EXPECT_EQ(log.warnings().size(), 1u);
}

TEST_F(DatasetTest, WithoutAnotherConnectionTheFirstOneHasToDo) {
  start();
  daemon->one_line_only = true;
  auto dataset = open();
  std::vector<std::jthread> threads;
  for (std::uint32_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < 5; ++i) {
        EXPECT_NE(read(*dataset, 5 * t + i).value(), Tier::kDirect);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(dataset->generation(), 1u);
  EXPECT_FALSE(dataset->degraded());
  EXPECT_TRUE(log.warnings().empty());
  EXPECT_LE(daemon->greetings, 5);
}

TEST_F(DatasetTest, OpeningMayTakeLongerThanConnectingAsLongAsTheDaemonAnswers) {
  auto dataset = open();
  EXPECT_EQ(read(*dataset, 1).value(), Tier::kDirect);
  start();
  daemon->open_ms = 3500;  // more than a second attempt may take
  const Instant deadline = clock.now() + std::chrono::seconds(8);
  while (!dataset->view() && clock.now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_NE(dataset->view(), nullptr);
  EXPECT_EQ(daemon->opens, 1);
}

std::set<std::string> open_sockets() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.starts_with("socket:")) found.insert(target);
  }
  return found;
}

TEST_F(DatasetTest, AForkWhileConnectingKeepsNoCopyOfTheConnection) {
  start();
  daemon->hello_ms = 600;
  auto dataset = open();
  std::jthread reader([&] { EXPECT_EQ(read(*dataset, 1).value(), Tier::kFetched); });
  while (daemon->greetings == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const pid_t child = ::fork();
  if (child == 0) {
    const std::size_t before = open_sockets().size();
    if (dataset->generation() != 0) ::_exit(1);  // what a child begins with
    ::_exit(open_sockets().size() + 1 == before ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(DatasetTest, LaterReadsAreVerifiedOneInSoMany) {
  start();
  daemon->verify_one_in = 4;
  daemon->put(ItemId(3), 1, true);
  auto dataset = open();
  EXPECT_EQ(read(*dataset, 3).value(), Tier::kPinned);
  daemon->garble(1);
  std::string out(text_of(3).size(), '\0');
  Tier tier;
  int noticed = 0;
  for (int i = 0; i < 8; ++i) {
    noticed +=
        dataset->read_resident(ItemId(3), std::as_writable_bytes(std::span(out)), tier) ? 0 : 1;
  }
  EXPECT_GE(noticed, 5);  // one of the first four, and from then on each
}

TEST_F(DatasetTest, AnotherVersionIsNamedWithTheCure) {
  start();
  daemon->protocol = kProtocolVersion + 1;
  auto dataset = open();
  EXPECT_EQ(read(*dataset, 3).value(), Tier::kDirect);
  ASSERT_EQ(log.warnings().size(), 1u);
  const std::string line = log.warnings()[0];
  EXPECT_NE(line.find("scripted 9.9 with protocol 3"), std::string::npos) << line;
  EXPECT_NE(line.find("quiver-cache 0.1.0 with protocol 2"), std::string::npos) << line;
  EXPECT_NE(line.find("quiver stop"), std::string::npos) << line;
}

TEST_F(DatasetTest, OffReadsTheOriginWithoutAWord) {
  start();
  options.settings.enabled = false;
  auto dataset = open();
  EXPECT_EQ(read(*dataset, 3).value(), Tier::kDirect);
  EXPECT_EQ(dataset->view(), nullptr);
  EXPECT_EQ(daemon->opens, 0);
  EXPECT_TRUE(log.warnings().empty());
  EXPECT_FALSE(dataset->degraded());
}

TEST_F(DatasetTest, WithoutADaemonItReadsTheOriginAndWarnsOnce) {
  auto dataset = open();
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(read(*dataset, i).value(), Tier::kDirect);
  EXPECT_EQ(log.warnings().size(), 1u);
}

TEST_F(DatasetTest, ADaemonThatCannotStartIsNamedWithItsLastWords) {
  options.daemon_program = "/bin/false";
  auto dataset = open();
  EXPECT_EQ(read(*dataset, 0).value(), Tier::kDirect);
  ASSERT_EQ(log.warnings().size(), 1u);
  EXPECT_NE(log.warnings()[0].find("quiverd did not come up"), std::string::npos);
}

TEST_F(DatasetTest, ADirectoryThatIsNoCacheIsNotTouched) {
  std::ofstream(dir / "cache/thesis.txt") << "mine";
  options.daemon_program = "/bin/false";
  auto dataset = open();
  EXPECT_EQ(read(*dataset, 0).value(), Tier::kDirect);
  ASSERT_EQ(log.warnings().size(), 1u);
  EXPECT_NE(log.warnings()[0].find("nothing was touched"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(dir / "cache/quiverd.log"));
}

TEST_F(DatasetTest, AnObjectThatChangedIsATypedError) {
  auto dataset = open();
  std::ofstream(dir / "data/03") << std::string(text_of(3).size(), '!');
  const Code code = read(*dataset, 3).error().code;
  EXPECT_EQ(code, Code::kChanged);
  std::filesystem::remove(dir / "data/04");
  EXPECT_EQ(read(*dataset, 4).error().code, Code::kNotFound);
}

TEST_F(DatasetTest, AForkBeginsWithNothingAndHarmsNobody) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer does not support work in a fork of several threads, and can hang";
#endif
  start();
  for (std::uint32_t i = 0; i < kItems; ++i) daemon->put(ItemId(i), 1, true);
  auto dataset = open();
  std::atomic<bool> over = false;
  std::jthread reader([&] {  // so that locks may be held at the fork
    while (!over) EXPECT_TRUE(read(*dataset, 5));
  });
  for (int round = 0; round < 5; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool none = dataset->generation() == 0;
      const auto tier = read(*dataset, 7);
      const bool good = none && tier && *tier == Tier::kPinned && dataset->generation() == 1;
      dataset.reset();
      ::_exit(good ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  over = true;
  reader.join();
  EXPECT_EQ(read(*dataset, 9).value(), Tier::kPinned);
  EXPECT_EQ(dataset->generation(), 1u);
  EXPECT_EQ(daemon->opens, 6);
}

TEST_F(DatasetTest, ReadersRaceWithEvictionAndNeverReadWrongBytes) {
  start();
  daemon->verify_one_in = 0;  // nothing but the rules of eviction guards the bytes
  auto dataset = open();
  std::atomic<bool> over = false;
  std::vector<std::jthread> readers;
  for (std::uint32_t t = 0; t < 3; ++t) {
    readers.emplace_back([&, t] {
      for (std::uint32_t i = t; !over; ++i) EXPECT_TRUE(read(*dataset, i % 8));
    });
  }
  for (std::uint32_t segment = 1; segment < 60; ++segment) {
    for (std::uint32_t i = 0; i < 8; ++i) daemon->put(ItemId((i + segment) % 8), segment, true);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    daemon->evict(segment);
  }
  over = true;
}

TEST_F(DatasetTest, ARankJoins) {
  start();
  auto dataset = open();
  EXPECT_TRUE(dataset->join({1}, 1, 0, 4, {}));
  EXPECT_NO_FATAL_FAILURE(dataset->report({}));
  daemon.reset();
  EXPECT_EQ(read(*dataset, 3).value(), Tier::kDirect);
  EXPECT_EQ(dataset->join({1}, 1, 0, 4, {}).error().code, Code::kUnavailable);
}

TEST_F(DatasetTest, ARankIsThereOnceAndMayComeAgainWhenItHasLeft) {
  start();
  auto dataset = open();
  {
    const auto board = dataset->join({1}, 2, 0, 4, {}).value();
    const Error twice = dataset->join({1}, 2, 0, 4, std::chrono::seconds(5)).error();
    EXPECT_EQ(twice.code, Code::kInvalid);
    EXPECT_EQ(twice.message, "rank 0 of this job is there already, in this process");
    EXPECT_TRUE(dataset->join({1}, 2, 1, 4, {}));
  }
  EXPECT_EQ(daemon->leaves, 2);
  EXPECT_TRUE(dataset->join({1}, 2, 0, 4, {}));
  EXPECT_EQ(daemon->joins, 3);
  EXPECT_EQ(daemon->leaves, 3);
}

TEST_F(DatasetTest, LeavingADaemonThatDoesNotAnswerHoldsNobodyUp) {
  start();
  auto dataset = open();
  auto board = dataset->join({1}, 1, 0, 4, {}).value();
  daemon->leave_ms = 3000;
  const Instant began = clock.now();
  board.reset();
  EXPECT_LT(clock.now() - began, std::chrono::seconds(1));
  EXPECT_TRUE(dataset->join({1}, 1, 0, 4, {}));
  daemon->leave_ms = 0;
}

TEST_F(DatasetTest, ARankOfAProcessThatHasJustDiedIsWaitedFor) {
  start();
  daemon->refused_joins = 2;
  EXPECT_EQ(open()->join({1}, 2, 0, 4, {}).error().code, Code::kInvalid);
  EXPECT_TRUE(open()->join({1}, 2, 0, 4, std::chrono::seconds(5)));
  EXPECT_EQ(daemon->joins, 3);
}

TEST_F(DatasetTest, MoreReadersThanConnectionsAllGetTheirItems) {
  options.settings.fetch_concurrency = 128;
  start();
  auto dataset = open();
  {
    std::vector<std::jthread> readers;
    for (std::uint32_t t = 0; t < 40; ++t) {
      readers.emplace_back([&, t] {
        for (std::uint32_t i = 0; i < kItems; ++i) EXPECT_TRUE(read(*dataset, (i + t) % kItems));
      });
    }
  }
  EXPECT_FALSE(dataset->degraded());
  EXPECT_EQ(dataset->stats().items[static_cast<int>(Tier::kDirect)], 0u);
  EXPECT_LE(daemon->greetings, 8);
}

TEST(DaemonCommand, NamesWhatIsNotAtItsDefault) {
  Settings settings;
  settings.disk_limit.size = Bytes(2'000'000);
  settings.verify = Verify::kAlways;
  settings.idle_timeout = std::chrono::seconds(7);
  const auto command = daemon_command("quiverd", {"/c", "/c/quiverd.sock"}, settings);
  const auto has = [&](const std::string& option, const std::string& value) {
    const auto at = std::ranges::find(command, option);
    return at != command.end() && at + 1 != command.end() && *(at + 1) == value;
  };
  EXPECT_EQ(command[0], "quiverd");
  EXPECT_TRUE(has("--cache-dir", "/c"));
  EXPECT_TRUE(has("--socket", "/c/quiverd.sock"));
  EXPECT_TRUE(has("--disk-limit", SizeOrPercent{}.write(settings.disk_limit)));
  EXPECT_TRUE(has("--verify", "always"));
  EXPECT_TRUE(has("--idle-timeout", "7"));
  EXPECT_EQ(std::ranges::find(command, "--window"), command.end());
}

}  // namespace
}  // namespace quiver::cache
