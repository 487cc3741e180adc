// SPDX-License-Identifier: Apache-2.0
#pragma once

// Visit: a callback of CUPTI that may be running on any thread while a trace ends. CUPTI does not
// say that cuptiUnsubscribe waits for callbacks, so a backend waits itself: each thread records
// when it is inside, without a lock and without memory that threads share.

#include <atomic>
#include <cstdint>
#include <penstock/version.hpp>

#include "event_sink.hpp"
#include "kept_number.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

class CuptiBackend;

/// The state of a thread that a backend keeps between callbacks.
struct VisitingThread {
  struct Call {
    std::uint32_t correlation = 0;  ///< 0: no call is open
    Time begin = 0;                 ///< 0: not recorded
  };
  std::atomic<int> depth{0};  ///< number of nested callbacks
  bool muted = false;         ///< the current CUDA calls are the backend's own
  std::uint64_t window = 0;   ///< the recording window to which the following members belong
  KeptNumber track;
  Call runtime, driver;
};

/// While one exists, the backend is not destroyed.
class Visit {
 public:
  Visit();
  ~Visit();
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  /// Returns null if no trace is on, or if the thread is about to end.
  CuptiBackend* backend() const { return backend_; }
  VisitingThread& thread() const { return *thread_; }

  /// Returns the entry of the calling thread, or null while it ends.
  static VisitingThread* this_thread();
  /// Later visits see `backend`. With null, this returns when no other thread sees the former
  /// backend.
  static void lead_to(CuptiBackend* backend);

 private:
  VisitingThread* thread_;
  CuptiBackend* backend_ = nullptr;
};

}  // namespace penstock::trace::detail
