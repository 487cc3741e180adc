// SPDX-License-Identifier: Apache-2.0
#pragma once

// EngineTurn: limits how many threads use the video engines of a device at a time.

#include <penstock/version.hpp>
#include <semaphore>

namespace penstock::inline PENSTOCK_ABI::video {

/// The turns of all threads. Two decoders keep an engine busy; more would only slow each other.
class EngineTurns {
 public:
  explicit EngineTurns(int engines) : free_(2 * engines) {}

 private:
  friend class EngineTurn;
  std::counting_semaphore<> free_;
};

/// The turn of a thread, which is given back at destruction.
class EngineTurn {
 public:
  /// Takes a turn. If all are taken, waits for one, or takes none.
  EngineTurn(EngineTurns& turns, bool waits) : turns_(turns), is_taken_(turns.free_.try_acquire()) {
    if (is_taken_ || !waits) return;
    turns_.free_.acquire();
    is_taken_ = true;
  }
  EngineTurn(const EngineTurn&) = delete;
  EngineTurn& operator=(const EngineTurn&) = delete;
  ~EngineTurn() {
    if (is_taken_) turns_.free_.release();
  }

  bool is_taken() const noexcept { return is_taken_; }

 private:
  EngineTurns& turns_;
  bool is_taken_;
};

}  // namespace penstock::video
