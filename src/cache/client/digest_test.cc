#include "cache/client/digest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cache/client/digest_previous.h"
#include "cache/client/testing/scripted_daemon.h"
#include "io/test_directory.h"

namespace quiver::cache {
namespace {

class NoHttp final : public io::HttpTransport {
 public:
  Result<io::HttpResponse> perform(const io::HttpRequest&, const io::BodySink&,
                                   std::stop_token) override {
    return error(Code::kUnreachable, "there is no network in this test");
  }
};

class DigestTest : public testing::Test {
 protected:
  DigestTest() {
    options.origin.url = dir / "train";
    options.manifest_path = dir / "out/m.qvm";
    std::filesystem::create_directory(dir / "train");
  }
  void file(const std::string& name, const std::string& text) {
    const std::filesystem::path path = dir / ("train/" + name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  // As if it had been written long before it was digested: read once, however long that takes.
  void old_file(const std::string& name, const std::string& text, int hours = 1) {
    file(name, text);
    std::filesystem::last_write_time(
        dir / ("train/" + name),
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  Result<DigestReport> run() {
    return digest(options, {files, http, clock, log}, [&](const DigestProgress& p) { last = p; },
                  {});
  }

  io::TestDirectory dir;
  io::RealFiles files;
  NoHttp http;
  RealClock clock;
  QuietLog log;
  DigestOptions options;
  DigestProgress last;
};

TEST_F(DigestTest, AnImageFolderBecomesAManifest) {
  file("dog/b.png", "bark");
  file("cat/a.png", "meow");
  file("cat/empty.png", "");
  file("cat/notes.txt", "no image");
  const DigestReport report = run().value();
  EXPECT_EQ(report.items, 3u);
  EXPECT_EQ(report.classes, 2u);
  EXPECT_EQ(report.left_out, 1u);
  EXPECT_EQ(report.downloaded, 2u);  // nothing is read of what is empty
  EXPECT_EQ(last.items_done, 3u);
  EXPECT_EQ(last.bytes_done, Bytes(8));
  EXPECT_FALSE(last.listing);
  const auto manifest = Manifest::open(files, report.manifest_path, true).value();
  const Item first = manifest->item(ItemId(0));
  EXPECT_EQ(first.key, "cat/a.png");
  EXPECT_EQ(*first.hash, sha256(as_bytes("meow")));
  EXPECT_EQ(manifest->class_name(static_cast<std::uint32_t>(manifest->item(ItemId(2)).label)),
            "dog");
  EXPECT_EQ(report.public_id, public_id(manifest->root()));
}

TEST_F(DigestTest, WhatCannotBeADatasetIsOneSentence) {
  const Error nothing = run().error();
  EXPECT_NE(nothing.message.find("train"), std::string::npos);
  file("picture.png", "no class");
  EXPECT_EQ(run().error().code, Code::kInvalid);
  options.origin.url = dir / "missing";
  EXPECT_EQ(run().error().code, Code::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(options.manifest_path));
}

TEST_F(DigestTest, FlatFilesHaveNoLabels) {
  options.layout = Layout::kFiles;
  file("x/1.bin", "one");
  file("2.bin", "two");
  const DigestReport report = run().value();
  EXPECT_EQ(report.items, 2u);
  EXPECT_EQ(report.classes, 0u);
}

TEST_F(DigestTest, AnInterruptLeavesNoManifest) {
  file("cat/a.png", "meow");
  std::stop_source stop;
  stop.request_stop();
  const auto report = digest(options, {files, http, clock, log}, {}, stop.get_token());
  EXPECT_EQ(report.error().code, Code::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(options.manifest_path));
}

TEST_F(DigestTest, WhatPassesIsKeptByTheDaemon) {
  for (int i = 0; i < 40; ++i) old_file(fmt::format("cat/{}.png", i), fmt::format("picture {}", i));
  const auto manifest = Manifest::open(files, run().value().manifest_path, true).value();
  std::filesystem::create_directory(dir / "cache");
  ScriptedDaemon daemon(dir / "cache", manifest, [](ItemId) { return std::string(); });
  options.settings.cache_dir = dir / "cache";
  options.settings.fetch_concurrency = 4;
  options.fresh = true;
  options.daemon_program = "/bin/false";  // it runs already
  options.settings.disk_limit.size = 1_GiB;
  EXPECT_EQ(run().value().kept, 40u);
  EXPECT_EQ(daemon.inserts, 40);
  // A cache of about half the data: only what it will pin is offered.
  options.settings.disk_limit.size = Bytes(manifest->total_bytes().value / 2);
  const DigestReport half = run().value();
  EXPECT_GT(half.kept, 5u);
  EXPECT_LT(half.kept, 35u);
}

TEST_F(DigestTest, KeepingTakesFewConnectionsHoweverManyThreadsDigest) {
  for (int i = 0; i < 300; ++i)
    old_file(fmt::format("cat/{}.png", i), fmt::format("picture {}", i));
  const auto manifest = Manifest::open(files, run().value().manifest_path, true).value();
  std::filesystem::create_directory(dir / "cache");
  ScriptedDaemon daemon(dir / "cache", manifest, [](ItemId) { return std::string(); });
  daemon.insert_ms = 5;
  options.settings.cache_dir = dir / "cache";
  options.settings.fetch_concurrency = 128;
  options.fresh = true;
  options.daemon_program = "/bin/false";  // it runs already
  options.settings.disk_limit.size = 1_GiB;
  EXPECT_EQ(run().value().kept, 300u);
  EXPECT_LE(daemon.greetings, 9);
}

// Nothing is downloaded twice, however long it is.
TEST_F(DigestTest, LongObjectsAreKeptInParts) {
  const std::string piece(1 << 20, 'x');
  std::string two, forty;
  for (int i = 0; i < 2; ++i) two += piece;
  for (int i = 0; i < 40; ++i) forty += piece + std::to_string(i);
  old_file("cat/a.png", "short");
  old_file("cat/two.png", two);
  old_file("cat/forty.png", forty);
  const auto manifest = Manifest::open(files, run().value().manifest_path, true).value();
  std::filesystem::create_directory(dir / "cache");
  ScriptedDaemon daemon(dir / "cache", manifest, [](ItemId) { return std::string(); });
  options.settings.cache_dir = dir / "cache";
  options.daemon_program = "/bin/false";  // it runs already
  options.settings.disk_limit.size = 1_GiB;
  options.fresh = true;
  EXPECT_EQ(run().value().kept, 3u);
  EXPECT_EQ(daemon.inserts, 1);
  EXPECT_EQ(daemon.whole_from_parts, 2);
  EXPECT_LE(daemon.largest_part, kInsertPart);
  daemon.room_for_parts = false;
  EXPECT_EQ(run().value().kept, 1u);
}

class DigestAgain : public DigestTest {
 protected:
  std::string manifest() { return io::read_file(files, options.manifest_path, 1_MiB).value(); }
  std::string in_full() {
    DigestOptions full = options;
    full.manifest_path = dir / "out/full.qvm";
    digest(full, {files, http, clock, log}, {}, {}).value();
    return io::read_file(files, full.manifest_path, 1_MiB).value();
  }
};

TEST_F(DigestAgain, OnlyWhatHasChangedIsRead) {
  for (int i = 0; i < 20; ++i) old_file(fmt::format("cat/{}.png", i), fmt::format("picture {}", i));
  const DigestReport first = run().value();
  EXPECT_EQ(first.downloaded, 20u);
  EXPECT_FALSE(first.renewed);

  const DigestReport same = run().value();
  EXPECT_TRUE(same.renewed);
  EXPECT_EQ(same.downloaded, 0u);
  EXPECT_EQ(same.unchanged, 20u);
  EXPECT_EQ(same.added + same.changed + same.removed, 0u);
  EXPECT_EQ(same.public_id, first.public_id);
  EXPECT_EQ(manifest(), in_full());

  std::filesystem::remove(dir / "train/cat/3.png");
  old_file("dog/new.png", "a dog");
  old_file("cat/4.png", "PICTURE 4", 2);  // as long as it was
  old_file("cat/5.png", "picture 5", 3);  // touched
  const DigestReport news = run().value();
  EXPECT_EQ(news.downloaded, 3u);
  EXPECT_EQ(news.unchanged, 17u);
  EXPECT_EQ(news.added, 1u);
  EXPECT_EQ(news.changed, 1u);
  EXPECT_EQ(news.removed, 1u);
  EXPECT_EQ(manifest(), in_full());

  options.fresh = true;
  const DigestReport fresh = run().value();
  EXPECT_EQ(fresh.downloaded, 20u);
  EXPECT_EQ(fresh.unchanged + fresh.changed, 0u);
  EXPECT_EQ(manifest(), in_full());
}

TEST_F(DigestAgain, WhatWasYoungThenIsReadAgain) {
  file("cat/a.png", "meow");
  run().value();
  const auto mtime = std::filesystem::last_write_time(dir / "train/cat/a.png");
  file("cat/a.png", "MEOW");  // within a tick: it looks the same
  std::filesystem::last_write_time(dir / "train/cat/a.png", mtime);
  EXPECT_EQ(run().value().changed, 1u);
  EXPECT_EQ(manifest(), in_full());
}

// Its wall clock moves on by ten seconds each time somebody looks.
class HastyClock final : public Clock {
 public:
  Instant now() const override { return real_.now(); }
  WallTime wall() const override { return real_.wall() + std::chrono::seconds(10) * looks_++; }

 private:
  RealClock real_;
  mutable std::atomic<int> looks_ = 0;
};

TEST_F(DigestAgain, WhatWasYoungWhenALongDigestReadItIsReadAtItsEnd) {
  file("cat/young.png", "meow");
  old_file("cat/old.png", "meow meow");
  HastyClock hasty;
  EXPECT_EQ(digest(options, {files, http, hasty, log}, {}, {}).value().downloaded, 3u);
}

TEST_F(DigestAgain, AManifestThatIsOfNoUseIsNone) {
  old_file("cat/a.png", "meow");
  run().value();
  std::filesystem::resize_file(options.manifest_path, 100);  // damaged
  const DigestReport healed = run().value();
  EXPECT_EQ(healed.downloaded, 1u);
  EXPECT_FALSE(healed.renewed);

  std::filesystem::rename(dir / "train", dir / "elsewhere");
  options.origin.url = dir / "elsewhere";
  const DigestReport moved = run().value();
  EXPECT_EQ(moved.downloaded, 1u);
  EXPECT_FALSE(moved.renewed);
}

TEST(PreviousDigest, AnEtagTellsMoreThanATime) {
  const io::TestDirectory dir;
  io::RealFiles files;
  const auto previous = [&](const std::string& etag, std::int64_t mtime_ns) {
    ManifestBuilder builder("s3://b");
    const auto object = builder.add_object("a", {Bytes(4), etag, mtime_ns});
    builder.add_item(sha256(as_bytes("meow")), Bytes(4), "a", kNoLabel, object, 0);
    const std::string file = std::move(builder).finish().value();
    EXPECT_TRUE(io::write_file_atomically(files, dir / "m.qvm", as_bytes(file)));
    return PreviousDigest::open(files, dir / "m.qvm", "s3://b");
  };
  const auto tagged = previous("\"1\"", 7);
  EXPECT_TRUE(tagged.unchanged("a", {Bytes(4), "\"1\"", 8}));
  EXPECT_FALSE(tagged.unchanged("a", {Bytes(4), "\"2\"", 7}));
  EXPECT_FALSE(tagged.unchanged("a", {Bytes(5), "\"1\"", 7}));
  EXPECT_FALSE(tagged.unchanged("a", {Bytes(4), "", 7}));
  EXPECT_FALSE(tagged.unchanged("b", {Bytes(4), "\"1\"", 7}));
  EXPECT_FALSE(previous("W/\"1\"", 7).unchanged("a", {Bytes(4), "W/\"1\"", 7}));
  EXPECT_TRUE(previous("", 7).unchanged("a", {Bytes(4), "", 7}));
  EXPECT_FALSE(previous("", 0).unchanged("a", {Bytes(4), "", 0}));
}

TEST_F(DigestTest, TheDefaultPathTellsDatasetsApart) {
  Settings settings;
  settings.manifest_dir = "/m";
  OriginSettings a, b;
  a.url = "s3://bucket/train/";
  b.url = "s3://bucket/train";
  EXPECT_EQ(manifest_path_for(settings, a, Layout::kFiles),
            manifest_path_for(settings, b, Layout::kFiles));
  EXPECT_NE(manifest_path_for(settings, a, Layout::kFiles),
            manifest_path_for(settings, a, Layout::kImageFolder));
  b.endpoint = "http://other";
  EXPECT_NE(manifest_path_for(settings, a, Layout::kFiles),
            manifest_path_for(settings, b, Layout::kFiles));
  EXPECT_TRUE(manifest_path_for(settings, a, Layout::kFiles).starts_with("/m/"));
}

}  // namespace
}  // namespace quiver::cache
