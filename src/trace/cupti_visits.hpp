// SPDX-License-Identifier: Apache-2.0
#pragma once

// Visit: a callback of CUPTI's that may be on its way on any thread while a trace ends. CUPTI does
// not say that cuptiUnsubscribe waits for those, so that a backend does it itself: each thread
// tells when it is inside, without a lock and without memory that threads share.

#include <atomic>
#include <cstdint>

#include "event_sink.hpp"
#include "kept_number.hpp"

namespace penstock::trace::detail {

class CuptiBackend;

/// What a backend keeps of a thread between callbacks.
struct VisitingThread {
  struct Call {
    std::uint32_t correlation = 0;  ///< 0: none is open
    Time begin = 0;                 ///< 0: not recorded
  };
  std::atomic<int> depth{0};  ///< of callbacks that it is inside of
  bool muted = false;         ///< the calls of CUDA are the backend's own
  std::uint64_t window = 0;   ///< of recording, which what follows belongs to
  KeptNumber track;
  Call runtime, driver;
};

/// Within its scope the backend, if there is one, stays.
class Visit {
 public:
  Visit();
  ~Visit();
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  /// Null: no trace is on, or the thread is about to end.
  CuptiBackend* backend() const { return backend_; }
  VisitingThread& thread() const { return *thread_; }

  /// The caller's thread; null while it ends.
  static VisitingThread* this_thread();
  /// From now on visits see `backend`. With null: returns when no other thread sees the former one.
  static void lead_to(CuptiBackend* backend);

 private:
  VisitingThread* thread_;
  CuptiBackend* backend_ = nullptr;
};

}  // namespace penstock::trace::detail
