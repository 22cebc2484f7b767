// What the statistical tests need: distances, p-values, corrections for the number of tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace quiver::cache::testing {

// Kolmogorov–Smirnov distance between the positions of a group of items in an epoch of `total`
// positions and the uniform distribution over all positions.
inline double ks_distance(std::vector<std::uint32_t> positions, std::size_t total) {
  std::sort(positions.begin(), positions.end());
  const auto n = static_cast<double>(positions.size());
  double worst = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const double below = positions[i] / static_cast<double>(total);
    const double upto = (positions[i] + 1.0) / static_cast<double>(total);
    worst = std::max({worst, std::abs(static_cast<double>(i) / n - below),
                      std::abs(static_cast<double>(i + 1) / n - upto)});
  }
  return worst;
}

// The scale of that distance for a group of n of `total`: it passes one test at c = 1.63 times
// this.
inline double ks_scale(std::size_t n, std::size_t total) {
  return std::sqrt((1 - static_cast<double>(n) / static_cast<double>(total)) /
                   static_cast<double>(n));
}

// Kolmogorov's distribution: how often chance alone gives c or more.
inline double ks_p_value(double c) {
  if (c < 0.3) return 1;
  double sum = 0;
  for (int k = 1; k <= 100; ++k) sum += (k % 2 == 1 ? 2 : -2) * std::exp(-2.0 * k * k * c * c);
  return std::clamp(sum, 0.0, 1.0);
}

// The upper tail of chi-square: the regularised incomplete gamma function Q(df/2, x/2), by its
// series or its continued fraction, whichever converges.
inline double chi_square_p_value(double x, double df) {
  const double a = df / 2, y = x / 2;
  if (y <= 0) return 1;
  const double factor = std::exp(-y + a * std::log(y) - std::lgamma(a));
  if (y < a + 1) {
    double term = 1 / a, sum = term;
    for (double n = a + 1; term > sum * 1e-14; ++n) sum += term *= y / n;
    return 1 - sum * factor;
  }
  double b = y + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int i = 1; i < 100000; ++i) {
    const double an = -i * (i - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (std::abs(d * c - 1) < 1e-14) break;
  }
  return factor * h;
}

inline double chi_square(const std::vector<double>& seen, const std::vector<double>& expected) {
  double sum = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    sum += (seen[i] - expected[i]) * (seen[i] - expected[i]) / expected[i];
  }
  return sum;
}

// The p-value of counts that should all be equal.
inline double uniform_p_value(const std::vector<double>& seen) {
  const double mean =
      std::accumulate(seen.begin(), seen.end(), 0.0) / static_cast<double>(seen.size());
  return chi_square_p_value(chi_square(seen, std::vector<double>(seen.size(), mean)),
                            static_cast<double>(seen.size() - 1));
}

// Of a table of counts (rows × columns) whose rows and columns should be independent. Two-sided: a
// table that is too even is no chance either.
inline double independence_p_value(const std::vector<std::vector<double>>& table) {
  std::vector<double> rows(table.size()), columns(table.front().size());
  double total = 0;
  for (std::size_t r = 0; r < table.size(); ++r) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      rows[r] += table[r][c], columns[c] += table[r][c], total += table[r][c];
    }
  }
  double sum = 0;
  for (std::size_t r = 0; r < table.size(); ++r) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const double expected = rows[r] * columns[c] / total;
      sum += (table[r][c] - expected) * (table[r][c] - expected) / expected;
    }
  }
  const double p =
      chi_square_p_value(sum, static_cast<double>((rows.size() - 1) * (columns.size() - 1)));
  return std::min(1.0, 2 * std::min(p, 1 - p));
}

inline double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  const double ma = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mb = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - ma) * (b[i] - mb), aa += (a[i] - ma) * (a[i] - ma),
        bb += (b[i] - mb) * (b[i] - mb);
  }
  return ab / std::sqrt(aa * bb);
}

// Two-sided, of a correlation of n independent pairs: about normal with variance 1/(n − 1).
inline double correlation_p_value(double r, std::size_t n) {
  return std::erfc(std::abs(r) * std::sqrt(static_cast<double>(n - 1)) / std::sqrt(2.0));
}

// The smallest p-value after Holm's correction: a suite passes at 1 % when it is above 0.01.
// (Holm refuses at least one hypothesis exactly when Bonferroni does.)
inline double holm(const std::vector<double>& p_values) {
  return std::min(1.0, *std::min_element(p_values.begin(), p_values.end()) *
                           static_cast<double>(p_values.size()));
}

// Of several correlations of n pairs each, none of which should be there: by Holm over all of them
// and their mean, which shows a weak one that they have in common.
inline double uncorrelated(const std::vector<double>& correlations, std::size_t n) {
  std::vector<double> p_values;
  for (const double r : correlations) p_values.push_back(correlation_p_value(r, n));
  const double sum = std::accumulate(correlations.begin(), correlations.end(), 0.0);
  p_values.push_back(
      correlation_p_value(sum / std::sqrt(static_cast<double>(correlations.size())), n));
  return holm(p_values);
}

}  // namespace quiver::cache::testing
