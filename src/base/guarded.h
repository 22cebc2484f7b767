// Guarded<T>: a value that can be reached only while its lock is held.
//
//   Guarded<Index> index;
//   index.with([&](Index& i) { i.insert(hash, place); });
//
// Hold it for a look or a change, never across I/O or a callback.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

namespace quiver {

template <class T>
class Guarded {
 public:
  template <class... Args>
  explicit Guarded(Args&&... args) : value_(std::forward<Args>(args)...) {}

  template <class F>
  decltype(auto) with(F&& f) {
    std::lock_guard lock(mutex_);
    return std::forward<F>(f)(value_);
  }
  template <class F>
  decltype(auto) with(F&& f) const {
    std::lock_guard lock(mutex_);
    return std::forward<F>(f)(value_);
  }

  // Changes the value and wakes those who wait for it.
  template <class F>
  decltype(auto) change(F&& f) {
    struct Notify {
      std::condition_variable_any& c;
      ~Notify() { c.notify_all(); }
    } notify{changed_};
    std::lock_guard lock(mutex_);
    return std::forward<F>(f)(value_);
  }

  // Wakes those who wait for what has been changed through with().
  void wake() { changed_.notify_all(); }

  // Waits until `ready(value)`, the time-out or the stop; then calls `then(value)` under the same
  // lock and returns true, or returns false without calling it.
  template <class Rep, class Period, class Ready, class Then>
  bool wait_for(std::stop_token stop, std::chrono::duration<Rep, Period> timeout, Ready&& ready,
                Then&& then) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, stop, timeout, [&] { return ready(value_); })) return false;
    then(value_);
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  T value_;
};

}  // namespace quiver
