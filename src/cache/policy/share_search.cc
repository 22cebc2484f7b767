#include "cache/policy/share_search.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "cache/policy/cache_model.h"

namespace quiver::cache {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// The search. The state is a vector of shares; its value is exact, computed link by link.
//
// 1. Priced divisions. At a price p for a byte the links are independent of each other, and on one
//    link, at a given fair level, each dataset is: it takes the corner where value − p·bytes is
//    greatest. Where the link is then asked for more than it gives, datasets go beyond what feeds
//    their fastest job, those first to whom a byte/s of the link costs least. The level is searched
//    on a grid, the price by bisection until the budget is used. With many datasets that is all: it
//    misses the optimum by the one or two datasets that lie between corners.
// 2. Filled divisions: the datasets in some order, each as full as it gets. With few datasets these
//    are all corners of the budget's simplex.
// 3. Improvement: pairs exchange bytes, in steps to each other's corners and in parts. Its work is
//    bounded, so it is thorough for few datasets, where rounding in 1. matters.
class Search {
 public:
  Search(std::vector<ShareSeeker> seekers, std::vector<double> links, double budget)
      : seekers_(std::move(seekers)),
        budget_(budget),
        links_(std::move(links)),
        members_(links_.size()) {
    for (std::size_t i = 0; i < seekers_.size(); ++i) members_[seekers_[i].link].push_back(i);
  }

  using Shares = std::vector<double>;

  double value(const Shares& shares) {
    double sum = 0;
    for (std::size_t l = 0; l < links_.size(); ++l) sum += link_value(l, shares);
    return sum;
  }

  Shares best(std::vector<Shares> starts) {
    priced(starts);
    filled(starts);
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t s = 0; s < starts.size(); ++s) {
      fill(starts[s]);
      order.emplace_back(-value(starts[s]), s);
    }
    std::sort(order.begin(), order.end());
    Shares best = starts[order.front().second];
    double best_value = -order.front().first;
    std::optional<double> last;
    for (const auto& [negative, s] : order) {
      if (work_ > kMostWork) break;
      if (last && std::abs(*last - negative) < 1e-12) continue;  // the same one, most likely
      last = negative;
      Shares improved = starts[s];
      const double its = improve(improved, -negative);
      if (its > best_value) {
        best_value = its;
        best = std::move(improved);
      }
    }
    return best;
  }

 private:
  static constexpr std::uint64_t kMostWork = 400'000;  // looks at a dataset
  static constexpr int kLevels = 16, kPrices = 24;

  double level_of(std::size_t link, const Shares& shares) {
    work_ += members_[link].size();
    asked_.clear();
    for (const std::size_t i : members_[link]) {
      asked_.push_back(seekers_[i].fastest() * seekers_[i].missing(shares[i]));
    }
    return fair_level(asked_, links_[link]);
  }

  double link_value(std::size_t link, const Shares& shares) {
    const double level = level_of(link, shares);
    double sum = 0;
    for (std::size_t m = 0; m < asked_.size(); ++m) {
      const std::size_t i = members_[link][m];
      sum += asked_[m] <= level ? seekers_[i].weight() : seekers_[i].value_at(shares[i], level);
    }
    return sum;
  }

  double left(const Shares& shares) const {
    return std::max(0.0, budget_ - std::accumulate(shares.begin(), shares.end(), 0.0));
  }

  // Gives away what is left, each time where a byte gains most; where none gains anything, where
  // it spares the link most.
  void fill(Shares& shares) {
    for (double rest = left(shares); rest >= 1;) {
      std::optional<std::size_t> chosen;
      double most = -1;
      for (const std::size_t i : promising(shares, rest)) {
        const double more = std::min(rest, seekers_[i].most - shares[i]);
        const double before = link_value(seekers_[i].link, shares);
        shares[i] += more;
        const double after = link_value(seekers_[i].link, shares);
        shares[i] -= more;
        const double gain =
            (after - before) / more + 1e-12 * seekers_[i].fastest() / seekers_[i].need;
        if (gain <= most) continue;
        most = gain;
        chosen = i;
      }
      if (!chosen) return;
      const double more = std::min(rest, seekers_[*chosen].most - shares[*chosen]);
      shares[*chosen] += more;
      rest -= more;
    }
  }

  // Who could gain most from `rest` more bytes: the few whose own jobs gain most a byte while the
  // level of their link stays, and the few that spare their link most.
  std::vector<std::size_t> promising(const Shares& shares, double rest) {
    std::vector<std::pair<double, std::size_t>> gains, spares;
    for (std::size_t l = 0; l < links_.size(); ++l) {
      const double level = level_of(l, shares);
      for (const std::size_t i : members_[l]) {
        const ShareSeeker& seeker = seekers_[i];
        const double more = std::min(rest, seeker.most - shares[i]);
        if (more <= 0) continue;
        const double after = shares[i] + more;
        const double gain = seeker.value_at(after, level) - seeker.value_at(shares[i], level);
        const double spared = seeker.missing(shares[i]) - seeker.missing(after);
        gains.emplace_back(-gain / more, i);
        spares.emplace_back(-seeker.fastest() * spared / more, i);
      }
    }
    constexpr std::size_t kFew = 6;
    std::vector<std::size_t> out;
    for (auto* all : {&gains, &spares}) {
      const auto end = all->begin() + static_cast<std::ptrdiff_t>(std::min(kFew, all->size()));
      std::partial_sort(all->begin(), end, all->end());
      for (auto it = all->begin(); it != end; ++it) out.push_back(it->second);
    }
    return out;
  }

  Shares fill_in(const std::vector<std::size_t>& order) const {
    Shares shares;
    for (const ShareSeeker& seeker : seekers_) shares.push_back(seeker.least);
    double rest = left(shares);
    for (const std::size_t i : order) {
      const double more = std::min(rest, seekers_[i].most - shares[i]);
      shares[i] += more;
      rest -= more;
    }
    return shares;
  }

  void filled(std::vector<Shares>& out) {
    std::vector<std::size_t> order(seekers_.size());
    std::iota(order.begin(), order.end(), 0);
    constexpr std::size_t kFew = 5;
    if (seekers_.size() > kFew) return;
    do {
      out.push_back(fill_in(order));
    } while (std::next_permutation(order.begin(), order.end()));
  }

  // One link at a price and a level.
  struct Choice {
    double value = -kInfinite;  // weighted speeds − price × bytes
    double asked = 0;           // of the link
    Shares shares;              // of the link's members
  };
  // What it costs a dataset to go from its corner to all that it may have, and what that spares.
  struct Relief {
    double cost_per_byte, bytes;  // of the link, in a second
    std::size_t member;
  };

  Choice choose(std::size_t link, double price, double level) {
    Choice out;
    out.value = 0;
    std::vector<Relief> reliefs;
    for (std::size_t m = 0; m < members_[link].size(); ++m) {
      const ShareSeeker& seeker = seekers_[members_[link][m]];
      const auto [worth, share] = best_corner(seeker, price, level);
      const double now = std::min(level, seeker.fastest() * seeker.missing(share));
      const double last = std::min(level, seeker.fastest() * seeker.missing(seeker.most));
      out.value += worth;
      out.asked += now;
      out.shares.push_back(share);
      if (now <= last) continue;
      const double all = seeker.value_at(seeker.most, level) - price * seeker.most;
      reliefs.push_back({std::max(0.0, worth - all) / (now - last), now - last, m});
    }
    work_ += members_[link].size();
    if (out.asked > links_[link]) relieve(link, level, reliefs, out);
    return out;
  }

  // Its value less its price, and the share.
  static std::pair<double, double> best_corner(const ShareSeeker& seeker, double price,
                                               double level) {
    std::pair<double, double> best{-kInfinite, seeker.least};
    const auto consider = [&](double share, double value) {
      if (value - price * share > best.first) best = {value - price * share, share};
    };
    consider(seeker.least, seeker.value_at(seeker.least, level));
    consider(seeker.most, seeker.value_at(seeker.most, level));
    const auto slower = std::upper_bound(seeker.rates.begin(), seeker.rates.end(), level);
    for (auto k = static_cast<std::size_t>(slower - seeker.rates.begin()); k < seeker.rates.size();
         ++k) {
      const double share = seeker.share_for(level / seeker.rates[k]);
      if (share >= seeker.most) break;
      consider(share, seeker.full[k] + seeker.rates[k] * seeker.part[k]);
    }
    return best;
  }

  void relieve(std::size_t link, double level, std::vector<Relief>& reliefs, Choice& out) const {
    std::sort(reliefs.begin(), reliefs.end(),
              [](const Relief& a, const Relief& b) { return a.cost_per_byte < b.cost_per_byte; });
    for (const Relief& relief : reliefs) {
      const ShareSeeker& seeker = seekers_[members_[link][relief.member]];
      double& share = out.shares[relief.member];
      const double excess = out.asked - links_[link];
      if (excess <= 0) return;
      const double part = std::min(1.0, excess / relief.bytes);
      // Short of what feeds it in full, less of the dataset missing is no less of the link.
      const bool in_full = share >= seeker.share_for(level / seeker.fastest()) - 1;
      share = in_full ? share + part * (seeker.most - share) : seeker.most;
      out.value -= part * relief.bytes * relief.cost_per_byte;
      out.asked -= part * relief.bytes;
    }
    if (out.asked > links_[link] * (1 + 1e-9)) out.value = -kInfinite;
  }

  // The best division at a price, and what it occupies.
  std::pair<double, Shares> at_price(double price) {
    Shares shares(seekers_.size());
    for (std::size_t l = 0; l < links_.size(); ++l) {
      if (members_[l].empty()) continue;
      Choice best;
      for (const double level : levels(l)) {
        Choice choice = choose(l, price, level);
        if (choice.value > best.value) best = std::move(choice);
      }
      for (std::size_t m = 0; m < members_[l].size(); ++m) {
        shares[members_[l][m]] = best.shares[m];
      }
    }
    return {std::accumulate(shares.begin(), shares.end(), 0.0), std::move(shares)};
  }

  // A fair level is at least an equal part of the link, and it is below what anybody asks.
  std::vector<double> levels(std::size_t link) const {
    double fastest = 0;
    for (const std::size_t i : members_[link]) fastest = std::max(fastest, seekers_[i].fastest());
    const double least = links_[link] / static_cast<double>(members_[link].size());
    std::vector<double> out{std::max(least, fastest)};
    const double most = std::min(fastest, links_[link]);
    for (int k = 0; k < kLevels && least <= most; ++k) {
      out.push_back(least * std::pow(most / least, static_cast<double>(k) / (kLevels - 1)));
    }
    return out;
  }

  void priced(std::vector<Shares>& out) {
    const auto first = static_cast<std::ptrdiff_t>(out.size());
    double low = 1e-18, high = 1e6;  // of one byte, in weighted speeds
    for (int k = 0; k < kPrices; ++k) {
      const double price = std::sqrt(low * high);
      auto [bytes, shares] = at_price(price);
      if (bytes <= budget_) {
        high = price;
        out.push_back(std::move(shares));
      } else {
        low = price;
      }
    }
    // And the one just above the budget, without what is too much of it.
    auto [bytes, shares] = at_price(low);
    for (std::size_t i = 0; i < seekers_.size() && bytes > budget_; ++i) {
      const double less = std::min(bytes - budget_, shares[i] - seekers_[i].least);
      shares[i] -= less;
      bytes -= less;
    }
    out.push_back(std::move(shares));
    constexpr std::ptrdiff_t kNearest = 6;
    if (std::ssize(out) > first + kNearest) out.erase(out.begin() + first, out.end() - kNearest);
  }

  double improve(Shares& shares, double now) {
    for (bool better = true; better && work_ < kMostWork;) {
      better = false;
      for (std::size_t a = 0; a < seekers_.size(); ++a) {
        for (std::size_t b = 0; b < seekers_.size() && work_ < kMostWork; ++b) {
          if (a != b && exchange(shares, now, a, b)) better = true;
        }
      }
    }
    return now;
  }

  // Moves bytes from one to another where that is better.
  bool exchange(Shares& shares, double& now, std::size_t from, std::size_t to) {
    const double most =
        std::min(shares[from] - seekers_[from].least, seekers_[to].most - shares[to]);
    if (most < 1) return false;
    const double a = shares[from], b = shares[to];
    double best = now * (1 + 1e-9), moved = 0;
    const auto consider = [&](double bytes) {
      if (bytes < 1 || bytes > most) return;
      shares[from] = a - bytes;
      shares[to] = b + bytes;
      const double its = value(shares);
      if (its <= best) return;
      best = its;
      moved = bytes;
    };
    constexpr int kParts = 16;
    for (int k = 1; k <= kParts; ++k) consider(most * k / kParts);
    shares[from] = a - moved;
    shares[to] = b + moved;
    if (moved == 0) return false;
    now = best;
    return true;
  }

  const std::vector<ShareSeeker> seekers_;
  const double budget_;
  const std::vector<double> links_;
  std::vector<std::vector<std::size_t>> members_;  // of each link
  std::vector<double> asked_;
  std::uint64_t work_ = 0;
};

}  // namespace

std::vector<double> search_shares(std::vector<ShareSeeker> seekers, std::vector<double> links,
                                  double budget, std::vector<std::vector<double>> starts) {
  return Search(std::move(seekers), std::move(links), budget).best(std::move(starts));
}

}  // namespace quiver::cache
