// SPDX-License-Identifier: Apache-2.0
#pragma once

// Threads, mutexes, condition variables and stop tokens on the machine of execution.hpp, as far as
// the library uses the std:: ones. All of them need an execution. Time does not pass while a thread
// can go on; when none can, one of those that wait for a time gets its time-out.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "execution.hpp"

namespace penstock::test::weak {

class Mutex {
 public:
  void lock() {
    Execution& execution = *Execution::current();
    execution.step();
    while (locked_) {
      waiting_.push_back(execution.self());
      execution.block();
    }
    take(execution);
  }
  bool try_lock() {
    Execution& execution = *Execution::current();
    execution.step();
    if (locked_) return false;
    take(execution);
    return true;
  }
  void unlock() {
    Execution& execution = *Execution::current();
    execution.tick();
    released_ = execution.clock();
    locked_ = false;
    for (const std::size_t thread : std::exchange(waiting_, {})) execution.wake(thread);
  }

 private:
  void take(Execution& execution) {
    locked_ = true;
    execution.clock().join(released_);
  }

  bool locked_ = false;
  VectorClock released_;
  std::vector<std::size_t> waiting_;
};

class ConditionVariable {
 public:
  void notify_one() {
    Execution& execution = *Execution::current();
    execution.step();
    if (waiting_.empty()) return;
    const auto chosen =
        std::next(waiting_.begin(), static_cast<std::ptrdiff_t>(execution.choose(waiting_.size())));
    execution.wake(*chosen);
    waiting_.erase(chosen);
  }
  void notify_all() {
    Execution& execution = *Execution::current();
    execution.step();
    for (const std::size_t thread : std::exchange(waiting_, {})) execution.wake(thread);
  }

  void wait(std::unique_lock<Mutex>& lock) { wait(lock, false); }
  template <class Predicate>
  requires std::is_invocable_r_v<bool, Predicate&>
  void wait(std::unique_lock<Mutex>& lock, Predicate holds) {
    while (!holds()) wait(lock);
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(std::unique_lock<Mutex>& lock,
                            const std::chrono::time_point<Clock, Duration>& time) {
    // Half an hour from now never comes: whoever waits for so long has to be woken.
    const bool timed = time < Clock::now() + std::chrono::minutes(30);
    return wait(lock, timed) ? std::cv_status::no_timeout : std::cv_status::timeout;
  }
  template <class Clock, class Duration, class Predicate>
  bool wait_until(std::unique_lock<Mutex>& lock,
                  const std::chrono::time_point<Clock, Duration>& time, Predicate holds) {
    while (!holds())
      if (wait_until(lock, time) == std::cv_status::timeout) return holds();
    return true;
  }

 private:
  bool wait(std::unique_lock<Mutex>& lock, bool timed) {
    Execution& execution = *Execution::current();
    execution.step();  // Between what the thread has checked and its wait.
    waiting_.push_back(execution.self());
    lock.unlock();
    const bool woken = execution.block(timed);
    if (!woken) waiting_.remove(execution.self());
    lock.lock();
    return woken;
  }

  std::list<std::size_t> waiting_;
};

class Thread {
 public:
  using id = std::size_t;

  Thread() = default;
  template <class Function>
  requires std::is_invocable_v<Function&>
  explicit Thread(Function function)
      : number_(Execution::current()->start(std::move(function))), joinable_(true) {}
  Thread(Thread&& other) noexcept
      : number_(other.number_), joinable_(std::exchange(other.joinable_, false)) {}
  Thread& operator=(Thread&& other) noexcept {
    expect(!joinable_, "a thread that is overwritten was joined");
    number_ = other.number_;
    joinable_ = std::exchange(other.joinable_, false);
    return *this;
  }
  ~Thread() { expect(!joinable_, "a thread that is destroyed was joined"); }

  static unsigned hardware_concurrency() { return 2; }
  bool joinable() const { return joinable_; }
  void join() {
    Execution::current()->join(number_);
    joinable_ = false;
  }
  void detach() { joinable_ = false; }

 private:
  std::size_t number_ = 0;
  bool joinable_ = false;
};

// ---- Stop tokens
// -----------------------------------------------------------------------------------

/// What a source and its tokens share.
struct StopState {
  Mutex mutex;
  bool requested = false;
  std::list<std::function<void()>*> callbacks;
  std::function<void()>* called = nullptr;
  ConditionVariable returned;
};

class StopToken {
 public:
  StopToken() = default;
  explicit StopToken(std::shared_ptr<StopState> state) : state_(std::move(state)) {}
  bool stop_requested() const {
    if (!state_) return false;
    const std::lock_guard lock(state_->mutex);
    return state_->requested;
  }
  bool stop_possible() const { return state_ != nullptr; }

 private:
  template <class>
  friend class weak_stop_callback;
  std::shared_ptr<StopState> state_;
};

class StopSource {
 public:
  StopToken get_token() const { return StopToken(state_); }
  bool request_stop() {
    if (!state_) return false;  // moved from
    std::unique_lock lock(state_->mutex);
    if (std::exchange(state_->requested, true)) return false;
    while (!state_->callbacks.empty()) {
      state_->called = state_->callbacks.front();
      state_->callbacks.pop_front();
      lock.unlock();
      (*state_->called)();
      lock.lock();
      state_->called = nullptr;
      state_->returned.notify_all();
    }
    return true;
  }

 private:
  std::shared_ptr<StopState> state_ = std::make_shared<StopState>();
};

template <class Function>
class weak_stop_callback {  // its name in std, since an alias would not deduce Function
 public:
  weak_stop_callback(const StopToken& token, Function function)
      : state_(token.state_), function_(std::move(function)) {
    if (!state_) return;
    std::unique_lock lock(state_->mutex);
    if (!state_->requested) {
      state_->callbacks.push_back(&function_);
      return;
    }
    lock.unlock();
    function_();
  }
  ~weak_stop_callback() {
    if (!state_) return;
    std::unique_lock lock(state_->mutex);
    state_->callbacks.remove(&function_);
    state_->returned.wait(lock, [this] { return state_->called != &function_; });
  }
  weak_stop_callback(const weak_stop_callback&) = delete;
  weak_stop_callback& operator=(const weak_stop_callback&) = delete;

 private:
  std::shared_ptr<StopState> state_;
  std::function<void()> function_;
};

/// std::jthread.
class JoiningThread {
 public:
  JoiningThread() = default;
  template <class Function>
  explicit JoiningThread(Function function)
      : stop_(), thread_([function = std::move(function), token = stop_.get_token()]() mutable {
          if constexpr (std::is_invocable_v<Function&, StopToken>)
            function(token);
          else
            function();
        }) {}
  JoiningThread(JoiningThread&&) noexcept = default;
  JoiningThread& operator=(JoiningThread&& other) noexcept {
    JoiningThread taken(std::move(other));
    std::swap(stop_, taken.stop_);
    std::swap(thread_, taken.thread_);
    return *this;
  }
  ~JoiningThread() {
    if (!thread_.joinable()) return;
    stop_.request_stop();
    thread_.join();
  }

  bool request_stop() { return stop_.request_stop(); }
  StopToken get_stop_token() const { return stop_.get_token(); }
  bool joinable() const { return thread_.joinable(); }
  void join() { thread_.join(); }

 private:
  StopSource stop_;
  Thread thread_;
};

}  // namespace penstock::test::weak
