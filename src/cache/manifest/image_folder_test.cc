#include "cache/manifest/image_folder.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>
#include <utility>

namespace quiver::cache {
namespace {

using Names = std::vector<std::string_view>;  // of literals
using Classes = std::vector<std::string>;
using Labelled = std::vector<std::pair<std::string_view, int>>;

std::vector<ListedKey> listing(const Names& names) {
  std::vector<ListedKey> keys;
  for (std::string_view n : names) keys.push_back({n, n.empty() || n.back() == '/' ? 0u : 7u});
  return keys;
}

// What torchvision 0.2x's find_classes and make_dataset give for a directory with these files.
// Paths are relative to it; the order within a class is that of sorted(os.walk(class)), then sorted
// names.
struct Case {
  const char* what;
  Names files;
  Classes classes;
  Labelled samples;
  bool allow_empty = false;
};

const Case kCases[] = {
    {"classes and names are sorted, whatever the order of the listing",
     {"dog/b.jpg", "cat/2.png", "dog/a.jpg", "cat/10.png"},
     {"cat", "dog"},
     {{"cat/10.png", 0}, {"cat/2.png", 0}, {"dog/a.jpg", 1}, {"dog/b.jpg", 1}}},
    {"upper case sorts before lower case",
     {"a/x.jpg", "B/x.jpg"},
     {"B", "a"},
     {{"B/x.jpg", 0}, {"a/x.jpg", 1}}},
    {"classes sort by name, not by path: 'a' before 'a-b', though 'a-b/' < 'a/'",
     {"a-b/x.jpg", "a/x.jpg"},
     {"a", "a-b"},
     {{"a/x.jpg", 0}, {"a-b/x.jpg", 1}}},
    {"files of a folder come before its sub-folders, whatever their names",
     {"c/a/0.jpg", "c/z.jpg"},
     {"c"},
     {{"c/z.jpg", 0}, {"c/a/0.jpg", 0}}},
    {"os.walk's directories sort as strings: c/a, c/a-b, c/a/x ('-' < '/')",
     {"c/a/x/0.jpg", "c/a-b/0.jpg", "c/a/9.jpg"},
     {"c"},
     {{"c/a/9.jpg", 0}, {"c/a-b/0.jpg", 0}, {"c/a/x/0.jpg", 0}}},
    {"the extension test ignores case and needs only the ending",
     {"c/1.JPG", "c/2.JpEg", "c/3.webp", "c/.png", "c/4.TIFF", "c/xjpg", "c/5.jpg.txt", "c/6.gif"},
     {"c"},
     {{"c/.png", 0}, {"c/1.JPG", 0}, {"c/2.JpEg", 0}, {"c/3.webp", 0}, {"c/4.TIFF", 0}}},
    {"files at the root level are ignored", {"readme.jpg", "c/x.jpg"}, {"c"}, {{"c/x.jpg", 0}}},
    {"hidden folders are classes",
     {".hid/x.jpg", "c/x.jpg"},
     {".hid", "c"},
     {{".hid/x.jpg", 0}, {"c/x.jpg", 1}}},
    {"an empty class keeps its label when it is allowed",
     {"a/x.jpg", "b/x.txt", "c/x.jpg"},
     {"a", "b", "c"},
     {{"a/x.jpg", 0}, {"c/x.jpg", 2}},
     true},
    {"an empty directory is a class",
     {"a/x.jpg", "b/", "c/x.jpg"},
     {"a", "b", "c"},
     {{"a/x.jpg", 0}, {"c/x.jpg", 2}},
     true},
    {"UTF-8 sorts by code point",
     {"ö/x.jpg", "z/x.jpg", "€/x.jpg"},
     {"z", "ö", "€"},
     {{"z/x.jpg", 0}, {"ö/x.jpg", 1}, {"€/x.jpg", 2}}},
};

TEST(ImageFolder, GivesWhatTorchvisionGives) {
  for (const Case& c : kCases) {
    auto keys = listing(c.files);
    auto got = image_folder(keys, "root", image_extensions(), c.allow_empty);
    ASSERT_TRUE(got) << c.what << ": " << got.error().message;
    EXPECT_EQ(got->classes, c.classes) << c.what;
    Labelled samples;
    for (const auto& s : got->samples) samples.emplace_back(keys[s.index].key, s.label);
    EXPECT_EQ(samples, c.samples) << c.what;
  }
}

TEST(ImageFolder, CountsWhatItLeavesOut) {
  auto keys = listing({"", "a/", "a/sub/", "a/x.jpg", "a/x.txt", "top.jpg", "/lost.jpg"});
  auto got = image_folder(keys, "root", image_extensions()).value();
  EXPECT_EQ(got.samples.size(), 1u);
  EXPECT_EQ(got.directory_markers, 3u);
  EXPECT_EQ(got.not_images, 1u);
  EXPECT_EQ(got.outside_classes, 2u);
  EXPECT_EQ(got.classes, Classes{"a"});
}

TEST(ImageFolder, KeepsAFileOfNoBytes) {
  auto got = image_folder({{"a/x.jpg", 0}}, "root", image_extensions()).value();
  EXPECT_EQ(got.samples.size(), 1u);
}

TEST(ImageFolder, RefusesAFolderWithoutClassesAndSaysWhatToDo) {
  auto got = image_folder(listing({"x.jpg", "y.jpg"}), "s3://b/train", image_extensions());
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kInvalid);
  EXPECT_NE(got.error().message.find("s3://b/train"), std::string::npos);
  EXPECT_NE(got.error().message.find("above the class folders"), std::string::npos);
  EXPECT_FALSE(image_folder({}, "s3://b/train", image_extensions()));
}

TEST(ImageFolder, RefusesAClassWithoutAValidFileAndNamesIt) {
  auto got = image_folder(listing({"a/x.jpg", "b/x.txt"}), "s3://b/train", image_extensions());
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kInvalid);
  for (auto part : {"s3://b/train", "'b'", ".jpeg", "allow_empty"}) {
    EXPECT_NE(got.error().message.find(part), std::string::npos) << got.error().message;
  }
  EXPECT_EQ(got.error().message.find("'a'"), std::string::npos);
}

TEST(ImageFolder, TakesOtherExtensions) {
  auto got = image_folder(listing({"a/x.JPG", "a/y.npy"}), "r", {".NPY"}).value();
  ASSERT_EQ(got.samples.size(), 1u);
  EXPECT_EQ(got.samples[0].index, 1u);
}

TEST(FlatFolder, SortsByDirectoryThenName) {
  auto keys = listing({"b/1", "a/x/1", "z", "a/2", "a-b/1", "a/", "a//1"});
  auto got = flat_folder(keys, "r").value();
  Names order;
  for (std::size_t i : got.samples) order.push_back(keys[i].key);
  EXPECT_EQ(order, (Names{"z", "a/2", "a-b/1", "a//1", "a/x/1", "b/1"}));
  EXPECT_EQ(got.directory_markers, 1u);
}

TEST(FlatFolder, RefusesAnEmptyFolder) {
  auto got = flat_folder(listing({"a/", ""}), "s3://b/none");
  ASSERT_FALSE(got);
  EXPECT_NE(got.error().message.find("s3://b/none"), std::string::npos);
}

// Keys of few letters, so that components meet, and of any byte.
rc::Gen<std::vector<std::string>> any_names() {
  auto letter =
      rc::gen::oneOf(rc::gen::elementOf(std::string("aA/-./\xff")), rc::gen::arbitrary<char>());
  auto name = rc::gen::pair(rc::gen::container<std::string>(letter),
                            rc::gen::element<std::string>("", ".jpg", ".PNG", "/"));
  auto joined = rc::gen::map(name, [](const auto& parts) { return parts.first + parts.second; });
  return rc::gen::container<std::vector<std::string>>(joined);
}

TEST(ImageFolder, AccountsForEveryKeyWhateverItsBytes) {
  EXPECT_TRUE(rc::check([] {
    const auto names = *any_names();
    std::vector<ListedKey> keys;
    for (const std::string& n : names) keys.push_back({n, *rc::gen::inRange<std::uint64_t>(0, 3)});
    auto got = image_folder(keys, "r", image_extensions(), true);
    if (!got) return;  // no class folder
    RC_ASSERT(got->samples.size() + got->not_images + got->directory_markers +
                  got->outside_classes ==
              keys.size());
    RC_ASSERT(std::is_sorted(got->classes.begin(), got->classes.end()));
    std::set<std::size_t> seen;
    for (const auto& s : got->samples) {
      RC_ASSERT(seen.insert(s.index).second);
      const std::string& name = got->classes[static_cast<std::size_t>(s.label)];
      RC_ASSERT(keys[s.index].key.starts_with(name + "/"));
    }
    auto flat = flat_folder(keys, "r");
    if (!flat) return;  // markers alone
    RC_ASSERT(flat->samples.size() + flat->directory_markers == keys.size());
  }));
}

}  // namespace
}  // namespace quiver::cache
