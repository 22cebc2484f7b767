#include "cache/client/digest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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
  EXPECT_EQ(report.not_images, 1u);
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
  for (int i = 0; i < 40; ++i) file(fmt::format("cat/{}.png", i), fmt::format("picture {}", i));
  const auto manifest = Manifest::open(files, run().value().manifest_path, true).value();
  std::filesystem::create_directory(dir / "cache");
  ScriptedDaemon daemon(dir / "cache", manifest, [](ItemId) { return std::string(); });
  options.settings.cache_dir = dir / "cache";
  options.settings.fetch_concurrency = 4;
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
  for (int i = 0; i < 300; ++i) file(fmt::format("cat/{}.png", i), fmt::format("picture {}", i));
  const auto manifest = Manifest::open(files, run().value().manifest_path, true).value();
  std::filesystem::create_directory(dir / "cache");
  ScriptedDaemon daemon(dir / "cache", manifest, [](ItemId) { return std::string(); });
  daemon.insert_ms = 5;
  options.settings.cache_dir = dir / "cache";
  options.settings.fetch_concurrency = 128;
  options.daemon_program = "/bin/false";  // it runs already
  options.settings.disk_limit.size = 1_GiB;
  EXPECT_EQ(run().value().kept, 300u);
  EXPECT_LE(daemon.greetings, 9);
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
