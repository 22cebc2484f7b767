#include "cache/manifest/manifest.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cache/manifest/format.h"
#include "io/faulty_files.h"

namespace quiver::cache {
namespace {

using Opened = Result<std::shared_ptr<const Manifest>>;

// The worked example of docs/formats/manifest.md, frozen in tests/vectors/manifest_small.hex.
ManifestBuilder small() {
  ManifestBuilder b("s3://b/p");
  std::uint32_t cat = b.add_class("cat"), dog = b.add_class("dog");
  std::uint32_t png = b.add_object("cat/1.png", {Bytes(5), "\"e1\"", 0});
  std::uint32_t tar = b.add_object("t.tar", {Bytes(100), "", 1'700'000'000'000'000'000});
  b.add_item(sha256(as_bytes("hello")), Bytes(5), "cat/1.png", static_cast<std::int32_t>(cat), png,
             0);
  b.add_item(sha256({}), Bytes(0), "dog/empty.png", static_cast<std::int32_t>(dog), tar, 100);
  b.add_item(sha256(as_bytes("world!")), Bytes(6), "t/x.png", kNoLabel, tar, 10);
  return b;
}

std::string small_file() {
  return small().finish().value();
}

Opened open_bytes(std::string_view bytes, bool verify) {
  return Manifest::open(io::make_sealed_copy("test", as_bytes(bytes)).value(), "test.manifest",
                        verify);
}

// Touches every byte that an accessor hands out, so that a sanitizer sees a stray one.
std::size_t read_all(const Manifest& m) {
  std::size_t sum = 0;
  auto touch = [&](std::string_view text) {
    for (char c : text) sum += static_cast<unsigned char>(c);
  };
  touch(m.origin_url());
  for (std::uint32_t i = 0; i < m.size(); ++i) {
    Item item = m.item(ItemId(i));
    touch(item.key);
    touch(std::string_view(reinterpret_cast<const char*>(item.hash->bytes.data()), 32));
    touch(m.object(item.object).key);
    touch(m.object(item.object).etag);
    if (item.label != kNoLabel) touch(m.class_name(static_cast<std::uint32_t>(item.label)));
  }
  return sum;
}

// Overwrites part of a file and mends what `rest` says, as a forger would.
enum class Mend { kHeader, kHeaderAndDigests };
void mend(std::string& file, Mend what) {
  format::Header h;
  std::memcpy(&h, file.data(), sizeof h);
  if (what == Mend::kHeaderAndDigests) {
    h.root = format::content_root(h, as_bytes(file));
    h.places_digest = format::places_digest(h, as_bytes(file));
  }
  h.header_digest = format::header_digest(h);
  std::memcpy(file.data(), &h, sizeof h);
}

template <class Row, class Change>
void change_row(std::string& file, format::TableId id, std::size_t i, Change&& change) {
  format::Header h;
  std::memcpy(&h, file.data(), sizeof h);
  char* at = file.data() + h.tables[id].offset + i * sizeof(Row);
  Row row;
  std::memcpy(&row, at, sizeof row);
  change(row);
  std::memcpy(at, &row, sizeof row);
}

class Folder {
 public:
  Folder() { EXPECT_NE(::mkdtemp(path_.data()), nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_ = testing::TempDir() + "manifest_test.XXXXXX";
};

TEST(Manifest, GivesBackWhatWasBuilt) {
  for (bool verify : {false, true}) {
    auto m = open_bytes(small_file(), verify).value();
    ASSERT_EQ(m->size(), 3u);
    EXPECT_EQ(m->total_bytes(), Bytes(11));
    EXPECT_EQ(m->longest_item(), Bytes(6));
    EXPECT_EQ(m->origin_url(), "s3://b/p");
    ASSERT_EQ(m->class_count(), 2u);
    EXPECT_EQ(m->class_name(1), "dog");
    Item first = m->item(ItemId(0)), empty = m->item(ItemId(1)), last = m->item(ItemId(2));
    EXPECT_EQ(*first.hash, sha256(as_bytes("hello")));
    EXPECT_EQ(first.key, "cat/1.png");
    EXPECT_EQ(first.label, 0);
    EXPECT_EQ(empty.length, Bytes(0));
    EXPECT_EQ(empty.key, "dog/empty.png");
    EXPECT_EQ(last.label, kNoLabel);
    EXPECT_EQ(last.object, 1u);
    EXPECT_EQ(last.offset, 10u);
    ASSERT_EQ(m->object_count(), 2u);
    EXPECT_EQ(m->object(0).etag, "\"e1\"");
    EXPECT_EQ(m->object(1).key, "t.tar");
    EXPECT_EQ(m->object(1).etag, "");
    EXPECT_EQ(m->object(1).size, Bytes(100));
    EXPECT_EQ(m->object(1).mtime_ns, 1'700'000'000'000'000'000);
    EXPECT_EQ(m->object(2).key, "");
  }
}

TEST(Manifest, IsWrittenExactlyAsFrozen) {
  std::ifstream in(QUIVER_SOURCE_DIR "/tests/vectors/manifest_small.hex");
  std::string golden, line;
  while (std::getline(in, line)) {
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      golden.push_back(static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16)));
    }
  }
  EXPECT_EQ(small_file(), golden);
  auto m = open_bytes(golden, true).value();
  EXPECT_EQ(m->item(ItemId(2)).key, "t/x.png");
}

TEST(Manifest, RootIsThatOfTheContentAlone) {
  auto root_of = [](const char* url, const char* etag, const char* key, std::int32_t label) {
    ManifestBuilder b(url);
    b.add_class("a");
    b.add_class("b");
    b.add_object(std::string("o/") + etag, {Bytes(9), etag, 1});
    b.add_item(sha256({}), Bytes(4), key, label, 0, 3);
    return open_bytes(std::move(b).finish().value(), true).value()->root();
  };
  Sha256 root = root_of("s3://b/p", "e", "k", 0);
  EXPECT_EQ(root, root_of("https://elsewhere/", "another", "k", 0));
  EXPECT_NE(root, root_of("s3://b/p", "e", "other", 0));
  EXPECT_NE(root, root_of("s3://b/p", "e", "k", 1));
}

TEST(Manifest, NamesTheFileAndTheCureWhenItIsTruncatedAnywhere) {
  std::string file = small_file();
  for (std::size_t n = 0; n < file.size(); ++n) {
    auto got = open_bytes(file.substr(0, n), false);
    ASSERT_FALSE(got) << n;
    EXPECT_NE(got.error().code, Code::kVersion);
    EXPECT_NE(got.error().message.find("test.manifest"), std::string::npos);
    EXPECT_NE(got.error().message.find("digest the dataset again"), std::string::npos);
  }
  EXPECT_FALSE(open_bytes(file + '\0', false));
}

TEST(Manifest, NoticesEveryFlippedBit) {
  std::string file = small_file();
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string bad = file;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(open_bytes(bad, true)) << "bit " << bit;
    auto unverified = open_bytes(bad, false);
    if (unverified) read_all(**unverified);
  }
}

// A manifest of any shape: few letters, so that parts meet; keys made unique by their index.
std::string any_file() {
  int items = *rc::gen::inRange(1, 40), objects = *rc::gen::inRange(1, 10);
  int classes = *rc::gen::inRange(0, 5);
  ManifestBuilder b(*rc::gen::arbitrary<std::string>());
  for (int i = 0; i < classes; ++i) b.add_class(*rc::gen::arbitrary<std::string>());
  for (int i = 0; i < objects; ++i) {
    b.add_object(
        *rc::gen::arbitrary<std::string>(),
        {Bytes(1000), *rc::gen::arbitrary<std::string>(), *rc::gen::arbitrary<std::int64_t>()});
  }
  for (int i = 0; i < items; ++i) {
    b.add_item(sha256({}), Bytes(*rc::gen::inRange<std::uint64_t>(0, 500)),
               fmt::format("{}/{}", *rc::gen::arbitrary<std::string>(), i),
               *rc::gen::inRange(-1, classes),
               *rc::gen::inRange<std::uint32_t>(0, static_cast<std::uint32_t>(objects)),
               *rc::gen::inRange<std::uint64_t>(0, 500));
  }
  return std::move(b).finish().value();
}

TEST(Manifest, SurvivesTruncationAndFlippedBitsOfAnyFile) {
  EXPECT_TRUE(rc::check([] {
    std::string file = any_file();
    RC_ASSERT(open_bytes(file, true).has_value());
    for (std::size_t k = 0; k < 64; ++k) {
      RC_ASSERT(!open_bytes(file.substr(0, file.size() * k / 64), false).has_value());
    }
    std::size_t bit = *rc::gen::inRange<std::size_t>(0, file.size() * 8);
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ (1 << bit % 8));
    RC_ASSERT(!open_bytes(file, true).has_value());
    if (auto m = open_bytes(file, false)) read_all(**m);
  }));
}

TEST(Manifest, SurvivesRowsThatAForgerMadeValidByChecksum) {
  EXPECT_TRUE(rc::check([] {
    std::string file = any_file();
    for (int n = *rc::gen::inRange(1, 10); n > 0; --n) {
      auto at = *rc::gen::inRange(sizeof(format::Header), file.size());
      file[at] = *rc::gen::arbitrary<char>();
    }
    mend(file, Mend::kHeaderAndDigests);
    for (bool verify : {false, true}) {
      auto m = open_bytes(file, verify);
      if (!m) continue;
      read_all(**m);
      for (std::uint32_t i = 0; i < (*m)->size(); ++i) {
        Item item = (*m)->item(ItemId(i));
        RC_ASSERT(item.offset + item.length.value <= (*m)->object(item.object).size.value);
        RC_ASSERT(item.length <= (*m)->longest_item());
      }
    }
  }));
}

TEST(Manifest, SurvivesAnyForgedHeader) {
  EXPECT_TRUE(rc::check([] {
    std::string file = small_file();
    std::size_t word = *rc::gen::inRange<std::size_t>(2, offsetof(format::Header, root) / 4);
    auto value = *rc::gen::oneOf(rc::gen::arbitrary<std::uint32_t>(), rc::gen::just(0xFFFFFFFFu),
                                 rc::gen::inRange(0u, 600u));
    std::memcpy(file.data() + word * 4, &value, 4);
    mend(file, Mend::kHeader);
    if (auto m = open_bytes(file, false)) read_all(**m);
  }));
}

TEST(Manifest, OnePassFindsWhatChecksumsCannot) {
  using format::ItemRow, format::PlaceRow, format::ObjectRow, format::ClassRow;
  std::vector<std::pair<const char*, std::function<void(std::string&)>>> forgeries{
      {"keys that go back",
       [](auto& f) {
         change_row<ItemRow>(f, format::kItems, 0, [](ItemRow& r) { r.key_end = 500; });
       }},
      {"a label without class",
       [](auto& f) { change_row<ItemRow>(f, format::kItems, 0, [](ItemRow& r) { r.label = 2; }); }},
      {"a label below -1",
       [](auto& f) {
         change_row<ItemRow>(f, format::kItems, 0, [](ItemRow& r) { r.label = -2; });
       }},
      {"a reserved word",
       [](auto& f) { change_row<ItemRow>(f, format::kItems, 0, [](ItemRow& r) { r.flags = 2; }); }},
      {"an object that is not there",
       [](auto& f) {
         change_row<PlaceRow>(f, format::kPlaces, 0, [](PlaceRow& r) { r.object = 2; });
       }},
      {"a range beyond its object",
       [](auto& f) {
         change_row<PlaceRow>(f, format::kPlaces, 2, [](PlaceRow& r) { r.offset = 95; });
       }},
      {"a range that wraps",
       [](auto& f) {
         change_row<PlaceRow>(f, format::kPlaces, 2, [](PlaceRow& r) { r.offset = ~0ull - 2; });
       }},
      {"totals",
       [](auto& f) {
         change_row<ItemRow>(f, format::kItems, 2, [](ItemRow& r) { r.length = 5; });
       }},
      {"class names",
       [](auto& f) {
         change_row<ClassRow>(f, format::kClasses, 1, [](ClassRow& r) { r.name_end = 2; });
       }},
      {"ETags",
       [](auto& f) {
         change_row<ObjectRow>(f, format::kObjects, 0, [](ObjectRow& r) { r.etag_end = 99; });
       }},
  };
  for (auto& [what, forge] : forgeries) {
    std::string file = small_file();
    forge(file);
    mend(file, Mend::kHeaderAndDigests);
    auto verified = open_bytes(file, true);
    ASSERT_FALSE(verified) << what;
    EXPECT_EQ(verified.error().code, Code::kCorrupt) << what;
    read_all(*open_bytes(file, false).value());
  }
  std::string honest = small_file();
  mend(honest, Mend::kHeaderAndDigests);
  EXPECT_TRUE(open_bytes(honest, true));
}

TEST(Manifest, UncheckedRowsReadAsEmptyWhenTheyPointOutside) {
  std::string file = small_file();
  change_row<format::ItemRow>(file, format::kItems, 0,
                              [](auto& r) { r.key_end = 1u << 30, r.label = 7; });
  change_row<format::PlaceRow>(file, format::kPlaces, 2, [](auto& r) { r.object = 77; });
  auto m = open_bytes(file, false).value();
  EXPECT_EQ(m->item(ItemId(0)).key, "");
  EXPECT_EQ(m->item(ItemId(0)).label, kNoLabel);
  EXPECT_EQ(m->item(ItemId(1)).key, "");
  EXPECT_EQ(m->item(ItemId(2)).key, "t/x.png");
  EXPECT_EQ(m->item(ItemId(2)).length, Bytes(0));
}

TEST(Manifest, AnotherVersionIsAClearMessage) {
  std::string file = small_file();
  file[8] = 2;
  auto got = open_bytes(file, true);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kVersion);
  EXPECT_NE(got.error().message.find("version 2"), std::string::npos);
}

TEST(Manifest, OpensAFileAndOutlivesItsTruncation) {
  Folder folder;
  io::RealFiles files;
  std::string path = folder.file("m");
  ASSERT_TRUE(io::write_file_atomically(files, path, as_bytes(small_file())));
  auto m = Manifest::open(files, path, true).value();
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  EXPECT_EQ(m->item(ItemId(2)).key, "t/x.png");
  EXPECT_EQ(as_text(m->file_bytes()), small_file());
}

TEST(Manifest, ItsDescriptorCanBePassedOn) {
  Folder folder;
  io::RealFiles files;
  std::string path = folder.file("m");
  ASSERT_TRUE(io::write_file_atomically(files, path, as_bytes(small_file())));
  auto m = Manifest::open(files, path, true).value();
  io::Fd passed(::fcntl(m->descriptor(), F_DUPFD_CLOEXEC, 0));
  EXPECT_LT(::pwrite(passed.get(), "x", 1, 0), 0);
  EXPECT_EQ(Manifest::open(std::move(passed), "passed", true).value()->root(), m->root());
}

TEST(Manifest, RefusesWhatIsNoManifestFile) {
  Folder folder;
  io::RealFiles files;
  EXPECT_EQ(Manifest::open(files, folder.file("none"), true).error().code, Code::kNotFound);
  EXPECT_EQ(Manifest::open(files, folder.file(""), true).error().code, Code::kInvalid);
  ASSERT_TRUE(
      io::write_file_atomically(files, folder.file("text"), as_bytes(std::string(5000, 'x'))));
  auto text = Manifest::open(files, folder.file("text"), true);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::kInvalid);
  EXPECT_NE(text.error().message.find("not a manifest"), std::string::npos);
  io::Fd file(::open(folder.file("text").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(Manifest::open(std::move(file), "unsealed", true).error().code, Code::kInvalid);
}

TEST(Manifest, ReportsADiskThatFailsAndAFileThatShrinksMeanwhile) {
  Folder folder;
  io::RealFiles disk;
  std::string path = folder.file("m");
  ASSERT_TRUE(io::write_file_atomically(disk, path, as_bytes(small_file())));
  auto opened_with = [&](io::FileFault fault) {
    io::FaultyFiles files(disk);
    files.add(fault);
    return Manifest::open(files, path, true);
  };
  ASSERT_TRUE(opened_with({.op = io::FileOp::kPread, .skip = 2}));
  for (std::uint64_t read : {0, 1}) {  // of the header, of the whole
    auto failed = opened_with({.op = io::FileOp::kPread, .skip = read});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, Code::kIo);
    auto shrunk = opened_with({.op = io::FileOp::kPread, .skip = read, .shorten = 100});
    ASSERT_FALSE(shrunk);
    EXPECT_EQ(shrunk.error().code, Code::kCorrupt);
    EXPECT_NE(shrunk.error().message.find("became shorter"), std::string::npos);
  }
}

TEST(Manifest, SaysWhetherOthersCanReadIt) {
  Folder folder;
  io::RealFiles files;
  std::string path = folder.file("m");
  ASSERT_TRUE(io::write_file_atomically(files, path, as_bytes(small_file())));
  EXPECT_FALSE(readable_by_others(files, path).value());
  for (mode_t mode : {0640, 0604}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_TRUE(readable_by_others(files, path).value());
  }
}

// Each of these is one line that turns the small manifest into an impossible one.
TEST(ManifestBuilder, RefusesWhatAManifestCannotHold) {
  auto message_of = [](ManifestBuilder b) {
    auto file = std::move(b).finish();
    EXPECT_FALSE(file);
    if (file) return std::string();
    EXPECT_EQ(file.error().code, Code::kInvalid);
    return file.error().message;
  };
  auto with = [](std::string_view key, std::int32_t label, std::uint32_t object,
                 std::uint64_t offset) {
    ManifestBuilder b = small();
    b.add_item(sha256({}), Bytes(2), key, label, object, offset);
    return b;
  };
  EXPECT_NE(message_of(ManifestBuilder("s3://b/p")).find("s3://b/p"), std::string::npos);
  EXPECT_NE(message_of(with("cat/1.png", 0, 0, 0)).find("'cat/1.png'"), std::string::npos);
  EXPECT_NE(message_of(with("k", 2, 0, 0)).find("label 2"), std::string::npos);
  EXPECT_NE(message_of(with("k", -2, 0, 0)).find("label -2"), std::string::npos);
  EXPECT_NE(message_of(with("k", 0, 2, 0)).find("object 2"), std::string::npos);
  EXPECT_NE(message_of(with("k", 0, 0, 4)).find("beyond"), std::string::npos);
  EXPECT_NE(message_of(with("k", 0, 0, ~0ull)).find("beyond"), std::string::npos);
  EXPECT_TRUE(with("k", 0, 0, 3).finish());
  EXPECT_NE(message_of([] {
              ManifestBuilder b = small();
              std::uint32_t huge = b.add_object("huge", {Bytes(~0ull), "", 0});
              b.add_item(sha256({}), Bytes(~0ull), "h1", kNoLabel, huge, 0);
              b.add_item(sha256({}), Bytes(~0ull), "h2", kNoLabel, huge, 0);
              return b;
            }())
                .find("2^64"),
            std::string::npos);
}

TEST(Printable, IsAlwaysTextOfAMessage) {
  EXPECT_EQ(format::printable("a/ö.png"), "'a/ö.png'");
  EXPECT_EQ(format::printable(std::string_view("\n\0\x7f\xff\xc3", 5)),
            "'\\x0a\\x00\\x7f\\xff\\xc3'");
  EXPECT_EQ(format::printable("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");  // half of a surrogate pair
  EXPECT_EQ(format::printable(std::string(300, 'k')), "'" + std::string(200, 'k') + "…'");
}

// Of a listing that nobody has read: names in the place of hashes, but for the empty one.
std::string provisional_file() {
  ManifestBuilder b("s3://b/p");
  const std::uint32_t cat = b.add_class("cat");
  const std::uint32_t png = b.add_object("cat/1.png", {Bytes(5), "\"e1\"", 0});
  const std::uint32_t empty = b.add_object("cat/2.png", {Bytes(0), "", 0});
  b.add_item(sha256(as_bytes("a name")), Bytes(5), "cat/1.png", static_cast<std::int32_t>(cat), png,
             0, true);
  b.add_item(sha256({}), Bytes(0), "cat/2.png", kNoLabel, empty, 0);
  return std::move(b).finish().value();
}

TEST(Manifest, AProvisionalOneBecomesWhatADigestMakes) {
  const auto provisional = open_bytes(provisional_file(), true).value();
  EXPECT_TRUE(provisional->provisional());
  EXPECT_TRUE(provisional->item(ItemId(0)).provisional);
  EXPECT_FALSE(provisional->item(ItemId(1)).provisional);
  const std::vector<Sha256> hashes{sha256(as_bytes("hello")), sha256({})};
  const auto whole = open_bytes(with_hashes(*provisional, hashes), true).value();

  ManifestBuilder b("s3://b/p");
  const std::uint32_t cat = b.add_class("cat");
  const std::uint32_t png = b.add_object("cat/1.png", {Bytes(5), "\"e1\"", 0});
  const std::uint32_t empty = b.add_object("cat/2.png", {Bytes(0), "", 0});
  b.add_item(hashes[0], Bytes(5), "cat/1.png", static_cast<std::int32_t>(cat), png, 0);
  b.add_item(hashes[1], Bytes(0), "cat/2.png", kNoLabel, empty, 0);
  EXPECT_EQ(as_text(whole->file_bytes()), std::move(b).finish().value());

  EXPECT_EQ(listing_hash(*provisional), listing_hash(*whole));
  EXPECT_NE(listing_hash(*whole), listing_hash(*open_bytes(small_file(), true).value()));
}

TEST(Manifest, AProvisionalItemNeedsTheFlagOfItsManifest) {
  std::string file = provisional_file();
  format::Header header;
  std::memcpy(&header, file.data(), sizeof header);
  header.flags = 0;
  header.header_digest = format::header_digest(header);
  std::memcpy(file.data(), &header, sizeof header);
  EXPECT_EQ(open_bytes(file, true).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace quiver::cache
