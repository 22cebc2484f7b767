// Whether two orders of the same items have anything in common. For tests only.
#pragma once

#include <map>
#include <vector>

#include "base/units.h"

namespace quiver::cache::testing {

// Spearman's rank correlation of the positions of items in two orders of the same items.
inline double order_correlation(const std::vector<ItemId>& a, const std::vector<ItemId>& b) {
  std::map<ItemId, double> where;
  for (std::size_t i = 0; i < a.size(); ++i) where[a[i]] = static_cast<double>(i);
  const double n = static_cast<double>(a.size()), mean = (n - 1) / 2;
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    sum += (static_cast<double>(i) - mean) * (where.at(b[i]) - mean);
  }
  return sum / (n * (n * n - 1) / 12);
}

}  // namespace quiver::cache::testing
