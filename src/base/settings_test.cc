#include "base/settings.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

namespace quiver {
namespace {

using namespace std::chrono_literals;

struct Limits {
  int threads = 4;
  Bytes memory = 1_GiB;
  SizeOrShare disk;
  std::string folder;
};

std::vector<Field<Limits>> fields() {
  return {field(&Limits::threads, {"threads", "", "how many at once"}, Integer{1, 64}),
          field(&Limits::memory, {"memory_limit", "bytes", "most memory"}, Size{1_MiB}),
          field(&Limits::disk, {"disk_limit", "bytes", "most disk", "a fifth"}, SizeOrPercent{}),
          field(&Limits::folder, {"folder", "", "where"}, Text{})};
}

struct Loaded {
  Limits limits;
  std::vector<Provenance> sources;
};
using Pairs = std::map<std::string, std::string>;

Result<Loaded> load_from(const Pairs& arguments, const Pairs& environment, const char* file) {
  SettingsInputs inputs;
  inputs.arguments = arguments;
  inputs.environment = [&](const std::string& name) -> std::optional<std::string> {
    auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  };
  for (const auto& [name, value] : environment) inputs.environment_names.push_back(name);
  inputs.other_names = {"QUIVER_CONFIG"};
  if (file != nullptr) inputs.file = SettingsFile{"/etc/q.toml", file};
  Loaded out;
  out.sources = TRY(load(fields(), inputs, out.limits));
  return out;
}

void expect_refused(const Result<Loaded>& got, std::initializer_list<const char*> parts) {
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kInvalid);
  for (auto part : parts) {
    EXPECT_NE(got.error().message.find(part), std::string::npos)
        << got.error().message << " : " << part;
  }
}

TEST(Settings, ArgumentBeforeEnvironmentBeforeFileBeforeDefault) {
  const char* file = "threads = 5\n";
  auto threads = [&](const Pairs& a, const Pairs& e, const char* f) {
    return load_from(a, e, f).value().limits.threads;
  };
  EXPECT_EQ(threads({}, {}, nullptr), 4);
  EXPECT_EQ(threads({}, {}, file), 5);
  EXPECT_EQ(threads({}, {{"QUIVER_THREADS", "6"}}, file), 6);
  EXPECT_EQ(threads({{"threads", "7"}}, {{"QUIVER_THREADS", "6"}}, file), 7);
  auto sources = load_from({}, {{"QUIVER_THREADS", "6"}}, "folder = 'x'").value().sources;
  EXPECT_EQ(sources[0].where, "environment variable QUIVER_THREADS");
  EXPECT_EQ(sources[1].source, Source::kDefault);
  EXPECT_EQ(sources[3].where, "/etc/q.toml");
}

TEST(Settings, AnEmptyVariableCountsAsUnset) {
  EXPECT_EQ(load_from({}, {{"QUIVER_THREADS", ""}}, "threads = 5").value().limits.threads, 5);
}

TEST(Settings, TheFileTakesTomlValues) {
  auto l =
      load_from({}, {}, "threads=8 # eight\nmemory_limit = 2097152\ndisk_limit = \"75%\"").value();
  EXPECT_EQ(l.limits.threads, 8);
  EXPECT_EQ(l.limits.memory, 2_MiB);
  EXPECT_EQ(l.limits.disk.share, 0.75);
}

TEST(Settings, UnknownNamesAreRefusedWithTheNearest) {
  expect_refused(load_from({{"thread", "1"}}, {}, nullptr), {"'thread'", "argument", "'threads'"});
  expect_refused(load_from({}, {}, "disk_limt = 1"),
                 {"'disk_limt'", "/etc/q.toml", "'disk_limit'"});
  expect_refused(load_from({}, {{"QUIVER_MEMORY_LIMITS", "1"}}, nullptr),
                 {"QUIVER_MEMORY_LIMITS", "'QUIVER_MEMORY_LIMIT'"});
  expect_refused(load_from({{"zebra", "1"}}, {}, nullptr), {"'zebra'", "threads, memory_limit"});
}

TEST(Settings, OtherVariablesAreNotItsBusiness) {
  EXPECT_TRUE(load_from({}, {{"QUIVER_CONFIG", "/x"}, {"HOME", "/"}, {"QUIVERS", "3"}}, nullptr));
}

TEST(Settings, ABadValueSaysWhatWhereAndHow) {
  expect_refused(load_from({{"threads", "many"}}, {}, nullptr),
                 {"threads", "'many'", "argument", "a whole number from 1 to 64"});
  expect_refused(load_from({}, {{"QUIVER_MEMORY_LIMIT", "1kB"}}, nullptr),
                 {"memory_limit", "'1kB'", "QUIVER_MEMORY_LIMIT", "at least 1MiB"});
  expect_refused(load_from({}, {}, "disk_limit = '120%'"),
                 {"disk_limit", "'120%'", "/etc/q.toml", "75%"});
}

TEST(Settings, ABadFileSaysWhere) {
  expect_refused(load_from({}, {}, "threads = 3\nfolder = \n"), {"/etc/q.toml", "line 2"});
  expect_refused(load_from({}, {}, "[threads]\nx = 1"),
                 {"'threads'", "/etc/q.toml", "name = value"});
  expect_refused(load_from({}, {}, "threads = [1]"), {"'threads'", "single value"});
  expect_refused(load_from({}, {}, "threads = 1\nthreads = 2"), {"/etc/q.toml"});
}

template <class Kind>
void expect_values(const Kind& kind, std::vector<std::pair<const char*, typename Kind::Value>> good,
                   std::vector<const char*> bad) {
  for (const auto& [text, value] : good) {
    auto got = kind.read(text);
    ASSERT_TRUE(got) << text;
    EXPECT_EQ(*got, value) << text;
    EXPECT_EQ(kind.read(kind.write(value)).value(), value) << text;
  }
  for (const char* text : bad) EXPECT_FALSE(kind.read(text)) << text;
}

TEST(Kinds, ReadWhatPeopleWriteAndNothingElse) {
  expect_values(Switch{}, {{"true", true}, {"on", true}, {"0", false}, {"off", false}},
                {"", "maybe"});
  expect_values(Integer{-2, 9}, {{"-2", -2}, {"9", 9}},
                {"", "10", "-3", "1.5", "3x", " 1", "99999999999"});
  expect_values(Size{1_KiB}, {{"1kib", 1_KiB}, {"1.5MB", Bytes(1'500'000)}},
                {"", "1023", "x", "2GB/s"});
  expect_values(Size{Bytes(0), true}, {{"0", Bytes(0)}, {"4MB/s", Bytes(4'000'000)}},
                {"", "/s", "-1"});
  expect_values(
      SizeOrPercent{},
      {{"", {}}, {"75%", {{}, 0.75}}, {"100 %", {{}, 1.0}}, {"20GB", {Bytes(20'000'000'000), {}}}},
      {"0%", "101%", "-5%", "nan%", "%", "5%%", "half"});
  expect_values(Percent{0, 0.5}, {{"5%", 0.05}, {"0%", 0.0}, {"50 %", 0.5}},
                {"", "51%", "0.05", "-1%", "inf%"});
  EXPECT_EQ((Percent{0, 1}.write(0.29)), "29%");
  expect_values(Seconds{1s, 3600s}, {{"90", 90s}, {"10min", 600s}, {"1h", 3600s}, {"2.5 s", 3s}},
                {"", "0", "2h", "nan", "5 parsecs", "-1s"});
  expect_values(Choice<int>{{{"one", 1}, {"two", 2}}}, {{"two", 2}}, {"", "three", "One"});
}

TEST(Kinds, WritingASizeLosesNothing) {
  EXPECT_TRUE(rc::check([](std::uint32_t mantissa, std::uint8_t shift) {
    Bytes value(std::uint64_t{mantissa} << (shift % 20));
    RC_ASSERT(Size{Bytes(0)}.read(Size{Bytes(0)}.write(value)).value() == value);
  }));
}

TEST(Settings, AnyFileIsReadOrRefused) {
  expect_refused(load_from({}, {}, "threads = 3\né"), {"/etc/q.toml", "line 2"});
  expect_refused(load_from({}, {}, "threads = \xff"), {"/etc/q.toml", "line 1"});
  EXPECT_TRUE(rc::check([](const std::string& junk) {
    auto got = load_from({}, {}, ("threads = 3\n" + junk).c_str());
    if (!got) RC_ASSERT(!got.error().message.empty());
  }));
}

TEST(Settings, ExplainAndReferenceSayEverything) {
  FieldInfo disk = fields()[2].info;
  EXPECT_EQ(explain_field(disk, "75%", {Source::kFile, "/etc/q.toml"}),
            "disk_limit = 75%\n    from: /etc/q.toml\n    most disk [bytes]\n");
  EXPECT_EQ(explain_field(disk, "", {}),
            "disk_limit = (a fifth)\n    from: default\n    most disk [bytes]\n");
  EXPECT_EQ(reference_row(fields()[1].info),
            "| `memory_limit` | 1GiB | bytes | a size of at least 1MiB such as 20GB or 512MiB | "
            "most memory |\n");
}

TEST(LocalAddress, IsOneThatOtherMachinesCannotReach) {
  const LocalAddress kind;
  for (const char* good : {"", "127.0.0.1:9100", "[::1]:65535", "/run/quiver.sock"}) {
    EXPECT_EQ(kind.read(good).value(), good);
  }
  for (const char* bad : {"0.0.0.0:9100", "[::]:9100", "10.0.0.1:9100", "localhost", "9100",
                          ":9100", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
                          "127.0.0.1:-1", "127.0.0.1:1x", "metrics.sock"}) {
    EXPECT_FALSE(kind.read(bad)) << bad;
  }
}

}  // namespace
}  // namespace quiver
