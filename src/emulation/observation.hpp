// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tells an observer about calls and operations (emulation.hpp: observe). Without an observer it
// costs each call one relaxed load. The observer itself is used with the runtime's lock held.

#include <atomic>
#include <penstock/emulation.hpp>

#include "task.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

class Observation {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }

  // Call these with the lock held.
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

/// Returns the object of this process. It outlives a reset of the runtime.
inline Observation& observation() {
  static constinit Observation the_observation;
  return the_observation;
}

/// Loads the library that CUDA_INJECTION64_PATH names, at the first call of the process, passes it
/// the runtime's interface (interface.hpp) and calls its InitializeInjection. Call it without the
/// lock.
void load_injected_library();

inline std::atomic<bool> injection_is_settled{false};

/// While one thread loads the library, other threads continue, and their calls are not observed.
inline void settle_injection() {
  if (!injection_is_settled.load(std::memory_order_relaxed)) [[unlikely]]
    load_injected_library();
}

}  // namespace penstock::emulation::detail
