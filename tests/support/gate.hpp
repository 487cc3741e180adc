// SPDX-License-Identifier: Apache-2.0
#pragma once

// A gate holds streams closed, so that "the copy has not happened yet" is a fact and not a hope:
//
//   Gate gate;
//   gate.hold(stream);                                      // what is queued from here on waits
//   cudaMemcpyAsync(..., stream);
//   CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);    // certain
//   gate.open();
//
// The gate is a host function on the stream. On a GPU the host functions of all streams may share
// one thread: while a gate is closed, expect copies and fills of other streams to run, and no host
// function. Calls that wait for the device (cudaFree, cudaDeviceSynchronize) wait for the gate too.

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <thread>

#include "catch.hpp"

namespace penstock::test {

class Gate {
 public:
  /// A stream that is held for longer than `time_out` goes on, and the test fails.
  explicit Gate(std::chrono::milliseconds time_out = std::chrono::seconds(20))
      : state_(new_state()) {
    state_.time_out = time_out;
  }
  /// Opens the gate. Fails the test if a stream got tired of waiting.
  ~Gate() {
    open();
    if (state_.timed_out) {
      FAIL_CHECK("a gate was kept closed for longer than "
                 << state_.time_out.count()
                 << " ms: does the test wait for a stream that it holds itself?");
    }
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Queues the gate on `stream`: work queued after this call waits until it opens. Does not block.
  void hold(cudaStream_t stream) { REQUIRE_CUDA(cudaLaunchHostFunc(stream, &Gate::wait, &state_)); }
  /// Blocks until a held stream stands at the gate: all its earlier work is done.
  void wait_until_reached() const {
    const auto deadline = std::chrono::steady_clock::now() + state_.time_out;
    while (!state_.reached.load(std::memory_order_relaxed)) {
      if (std::chrono::steady_clock::now() > deadline) FAIL("no stream came to the gate");
      std::this_thread::sleep_for(poll_interval);
    }
  }
  /// Lets the streams go. States no order between this thread and the streams, neither to the
  /// compiler nor to ThreadSanitizer: a gate never hides that somebody forgot to wait.
  void open() noexcept { state_.open.store(true, std::memory_order_relaxed); }
  /// Lets the streams go, and what this thread wrote so far is visible to their work from here on.
  void open_and_publish() noexcept { state_.open.store(true, std::memory_order_release); }

 private:
  struct State {
    std::chrono::milliseconds time_out{};
    std::atomic<bool> open{false};
    std::atomic<bool> reached{false};
    std::atomic<bool> timed_out{false};
  };
  static constexpr std::chrono::microseconds poll_interval{20};

  // A stream may look at its gate after the test that made it has failed and gone, so states are
  // never freed.
  static State& new_state() {
    static std::mutex mutex;
    static auto& states = *new std::deque<State>;
    const std::lock_guard lock(mutex);
    return states.emplace_back();
  }

  // Polls, since a condition variable would order the opener before the stream (see open()).
  static void CUDART_CB wait(void* data) {
    auto& state = *static_cast<State*>(data);
    const auto deadline = std::chrono::steady_clock::now() + state.time_out;
    state.reached.store(true, std::memory_order_relaxed);
    while (!state.open.load(std::memory_order_acquire)) {
      if (std::chrono::steady_clock::now() > deadline) {
        state.timed_out = true;
        return;
      }
      std::this_thread::sleep_for(poll_interval);
    }
  }

  State& state_;
};

}  // namespace penstock::test
