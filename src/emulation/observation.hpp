// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who is told of calls and operations (emulation.hpp: observe). Off, it costs each call one relaxed
// load; the observer itself is used under the runtime's lock.

#include <atomic>
#include <penstock/emulation.hpp>

#include "task.hpp"

namespace penstock::emulation::detail {

class Observation {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }

  // Under the lock.
  bool begin(const Observer& observer);
  void end() { on_.store(false, std::memory_order_relaxed); }
  std::uint64_t next_call() { return ++calls_; }
  void call(const ApiCall& call) const {
    if (on()) observer_.call(observer_.context, call);
  }
  void operation(const Operation& operation) const {
    if (on()) observer_.operation(observer_.context, operation);
  }

 private:
  std::atomic<bool> on_{false};
  Observer observer_{};
  std::uint64_t calls_ = 0;
};

/// Of this process, whichever runtime is running: it outlives a reset.
inline Observation& observation() {
  static constinit Observation the_observation;
  return the_observation;
}

/// Loads the library that CUDA_INJECTION64_PATH names, at the first call of the process: gives it
/// the runtime's interface (interface.hpp) and calls its InitializeInjection. Not under the lock.
void load_injected_library();

inline std::atomic<bool> injection_is_settled{false};

/// Other threads go on while one loads the library; their calls until then are not observed.
inline void settle_injection() {
  if (!injection_is_settled.load(std::memory_order_relaxed)) [[unlikely]]
    load_injected_library();
}

}  // namespace penstock::emulation::detail
