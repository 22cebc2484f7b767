#include "base/share_rules.h"

#include <gtest/gtest.h>

namespace quiver {
namespace {

constexpr Bytes kGB = Bytes(1'000'000'000);

TEST(ShareRules, AreReadAsTheyAreWritten) {
  const auto rules = ShareRuleList{}.read("4f2a90c1 weight=2.5 limit=200GB,  77ab limit=50GB ");
  ASSERT_TRUE(rules);
  EXPECT_EQ(*rules, (std::vector<ShareRule>{{"4f2a90c1", 2.5, kGB * 200}, {"77ab", 1, kGB * 50}}));
  EXPECT_EQ(*ShareRuleList{}.read(ShareRuleList{}.write(*rules)), *rules);
  EXPECT_TRUE(ShareRuleList{}.read("")->empty());
}

TEST(ShareRules, RefuseWhatSaysNothingOrNothingClear) {
  for (const char* text :
       {"4f2a90c1", "4f2", "weight=2", "4f2a90c1 weight=0", "4f2a90c1 weight=-1",
        "4f2a90c1 weight=nan", "4f2a90c1 weight=1001", "4f2a90c1 limit=0", "4f2a90c1 limit=much",
        "4f2a90c1 heavy=1", "xyz0 weight=2", "4f2a90c1 weight=2,", ",", "4f2a90c1 weight=2x"}) {
    EXPECT_FALSE(ShareRuleList{}.read(text)) << text;
  }
}

TEST(ShareRules, AreOfTheDatasetWhoseIdBeginsSo) {
  const std::vector<ShareRule> rules{{"4f2a", 2, {}}, {"4f2a90c1", 3, {}}};
  EXPECT_EQ(share_rule_of(rules, "4f2a90c1").weight, 2);
  EXPECT_EQ(share_rule_of(rules, "77ab90c1").weight, 1);
  EXPECT_EQ(share_rule_of({}, "4f2a90c1"), ShareRule{});
}

}  // namespace
}  // namespace quiver
