// The control thread's inbox. Whoever else wants something of the daemon's state sends it work and,
// where it needs an answer, waits for that.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/result.h"

namespace quiver::cache {

class Control;
using Event = std::function<void(Control&)>;

// Any thread may push and ask; the control thread takes. Bounded by its senders: a connection waits
// for its answer before it sends more, a fetching thread has one item at a time.
// Failure: once closed it refuses (push is false, ask is kUnavailable); what was accepted before is
// still handled, so nobody waits for an answer that does not come.
class EventQueue {
 public:
  bool push(Event event) {
    return inbox_.change([&](Inbox& inbox) {
      if (inbox.closed) return false;
      inbox.events.push_back(std::move(event));
      return true;
    });
  }

  // Runs `f` on the control thread and returns what it returns. Never to be called from there.
  template <class F>
  auto ask(F f) -> std::invoke_result_t<F, Control&> {
    using R = std::invoke_result_t<F, Control&>;
    auto answer = std::make_shared<std::promise<R>>();
    auto future = answer->get_future();
    const bool taken = push([answer, f = std::make_shared<F>(std::move(f))](Control& control) {
      answer->set_value((*f)(control));
    });
    if (!taken) return error(Code::kUnavailable, "the daemon is stopping");
    return future.get();
  }

  // Waits for events until the time is over or the stop; returns all that are there.
  std::deque<Event> take(std::stop_token stop, Duration timeout) {
    std::deque<Event> events;
    inbox_.wait_for(
        stop, timeout, [](const Inbox& inbox) { return !inbox.events.empty(); },
        [&](Inbox& inbox) { events.swap(inbox.events); });
    return events;
  }

  void close() {
    inbox_.change([](Inbox& inbox) { inbox.closed = true; });
  }

 private:
  struct Inbox {
    std::deque<Event> events;
    bool closed = false;
  };
  Guarded<Inbox> inbox_;
};

}  // namespace quiver::cache
