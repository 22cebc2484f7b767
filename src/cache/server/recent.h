// Recent: what a monotone figure was in the last seconds, so that its rate can be told.
#pragma once

#include <chrono>
#include <deque>
#include <utility>

#include "base/clock.h"

namespace quiver::cache {

// One thread at a time. Keeps a value a second, of the last `kSpan`.
template <class T>
class Recent {
 public:
  static constexpr Duration kSpan = std::chrono::seconds(5);

  void add(Instant now, T value) {
    values_.emplace_back(now, std::move(value));
    while (values_.size() > 2 && now - values_[1].first >= kSpan) values_.pop_front();
  }
  // Between the first and the last value; 0 before there are two.
  double seconds() const {
    if (values_.size() < 2) return 0;
    return std::chrono::duration<double>(values_.back().first - values_.front().first).count();
  }
  // By how much `part` of the value has grown in that time.
  template <class F>
  double growth(F part) const {
    if (values_.size() < 2) return 0;
    return static_cast<double>(part(values_.back().second)) -
           static_cast<double>(part(values_.front().second));
  }
  template <class F>
  double per_second(F part) const {
    const double span = seconds();
    return span > 0 ? growth(part) / span : 0;
  }

 private:
  std::deque<std::pair<Instant, T>> values_;
};

}  // namespace quiver::cache
