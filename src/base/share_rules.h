// What an operator says of single datasets: how much they weigh when the cache divides, and the
// most that they may have. A kind of settings field (settings.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace quiver {

struct ShareRule {
  std::string dataset;  // the beginning of its public id, at least 4 characters
  double weight = 1;    // of each of its jobs; above 0, at most 1000
  Bytes limit;          // 0: none
  bool operator==(const ShareRule&) const = default;
};

// "4f2a90c1 weight=2 limit=200GB, 77ab01de limit=50GB"
struct ShareRuleList {
  using Value = std::vector<ShareRule>;
  Result<Value> read(std::string_view text) const;
  std::string write(const Value& value) const;
  std::string accepted() const {
    return "for each dataset its id, and weight= or limit= or both, such as '4f2a90c1 weight=2 "
           "limit=200GB', with commas between datasets";
  }
};

// The first rule for a dataset; the default one when there is none.
ShareRule share_rule_of(const std::vector<ShareRule>& rules, std::string_view public_id);

}  // namespace quiver
