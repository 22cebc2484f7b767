#include "cache/server/metrics_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cache/server/testing/daemon_fixture.h"

namespace quiver::cache {
namespace {

using testing::DaemonTest;
using testing::RawClient;
using testing::TestData;

constexpr std::uint32_t kItems = 12;

class MetricsText : public DaemonTest {};

// Of a real daemon, with a job: what its status has is what is exported.
TEST_F(MetricsText, IsWhatTheStatusSays) {
  const TestData data(folder + "/secret-data", kItems, 1000);
  start();
  RawClient client(socket());
  ASSERT_TRUE(client.open(data));
  auto board = client.join(1, kItems).value();
  board.begin({.epoch = 3, .part = kItems}, {0}, {0});
  board.set_counters({.pinned = 1, .staged = 2, .missed = 3, .direct = 4, .bytes = 5, .steps = 6});
  ASSERT_TRUE(eventually([&] {
    const auto job = nlohmann::json::parse(client.status())["datasets"][0]["jobs"][0];
    return job["served"]["items"] == 10 && job["to_take"] == kItems;
  }));
  ASSERT_TRUE(client.fetch({0, 1}));
  const std::string text = metrics_text(client.status());
  for (const char* line :
       {"quiver_job_served_items_total{", "kind=\"missed\"} 3", "kind=\"direct\"} 4",
        "quiver_job_epoch{", "quiver_degraded 0", "quiver_disk_limit_bytes 67108864",
        "reason=\"strict\"} 0", "kind=\"get\"}", "for=\"link\"} 0"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " in\n" << text;
  }
  EXPECT_EQ(text.find("secret"), std::string::npos) << "no address of an origin";
  EXPECT_EQ(text.find(data.root.hex()), std::string::npos) << "no root";
}

// Each family once, with its help and type before its values; counters end in _total, nothing else
// does.
TEST_F(MetricsText, IsWellFormed) {
  const TestData data(folder + "/data", kItems, 1000);
  const TestData other(folder + "/other", 5, 100, 9);
  start();
  RawClient a(socket()), b(socket());
  ASSERT_TRUE(a.open(data) && b.open(other));
  auto one = a.join(1, kItems), two = b.join(2, 5);
  ASSERT_TRUE(one && two);
  std::istringstream lines(metrics_text(a.status()));
  std::set<std::string> families, series;
  std::string line, family, type;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string first, second, name;
    words >> first >> second >> name;
    if (line.starts_with("# HELP ")) {
      family = name;
      EXPECT_TRUE(families.insert(name).second) << name;
      EXPECT_TRUE(line.ends_with('.') || line.ends_with("else 0.")) << line;
    } else if (line.starts_with("# TYPE ")) {
      EXPECT_EQ(name, family);
      words >> type;
      EXPECT_EQ(type == "counter", family.ends_with("_total")) << line;
    } else {
      EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << line;
      EXPECT_EQ(line.substr(0, line.find_first_of("{ ")), family);
    }
  }
  EXPECT_GT(families.size(), 50u);
  EXPECT_GT(series.size(), families.size());
}

TEST_F(MetricsText, OfNonsenseThereIsNone) {
  EXPECT_EQ(metrics_text("no json"), "");
}

}  // namespace
}  // namespace quiver::cache
