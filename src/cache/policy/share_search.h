// The search behind allocate(): shares of several datasets that maximise the jobs' weighted speeds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace quiver::cache {

// One dataset, its jobs of known rate in ascending order.
struct ShareSeeker {
  std::size_t link = 0;
  double need = 0, window = 0;  // bytes
  double least = 0, most = 0;   // that it may have
  std::vector<double> rates;
  std::vector<double> full;  // full[k]: weight of the jobs before the k-th
  std::vector<double> part;  // part[k]: sum of weight ÷ rate from the k-th on

  double fastest() const { return rates.back(); }
  double weight() const { return full.back(); }
  double missing(double share) const {
    if (share >= need) return 0;
    return 1 - std::max(0.0, share - window) / need;
  }
  // The share that leaves so much to the link.
  double share_for(double missing_now) const {
    return missing_now <= 0 ? need : window + need * (1 - missing_now);
  }
  // The jobs' weighted speeds with a share, at this level of the link.
  double value_at(double share, double level) const {
    const double absent = missing(share);
    return absent > 0 ? value(level / absent) : weight();
  }
  // The same when they are fed so many bytes/s.
  double value(double fed) const {
    const auto k =
        static_cast<std::size_t>(std::upper_bound(rates.begin(), rates.end(), fed) - rates.begin());
    return full[k] + (k == rates.size() ? 0 : fed * part[k]);
  }
};

// `links`: bytes/s, above 0. `starts`: divisions of the budget that the result is to be no worse
// than. Deterministic.
std::vector<double> search_shares(std::vector<ShareSeeker> seekers, std::vector<double> links,
                                  double budget, std::vector<std::vector<double>> starts);

}  // namespace quiver::cache
