// SPDX-License-Identifier: Apache-2.0
#pragma once

// ConsumerCalls: since when the consumer waits for a batch, if several of its threads call next()
// at the same time. The wait begins with the first of these calls, and again with each batch that
// one of them gets.

#include <penstock/detail/observe/ticks.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

class ConsumerCalls {
 public:
  /// A call of next(). Calls are constructed and destroyed under one lock, which a waiting call
  /// releases while it waits.
  class [[nodiscard]] Call {
   public:
    explicit Call(ConsumerCalls& calls) : calls_(calls) {
      if (calls_.count_++ == 0) calls_.asked_ = ticks();
    }
    ~Call() { --calls_.count_; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    Ticks asked() const { return calls_.asked_; }
    /// Records that this call got a batch at `now`.
    void taken(Ticks now) { calls_.asked_ = now; }

   private:
    ConsumerCalls& calls_;
  };

 private:
  int count_ = 0;  // of calls that have not ended
  Ticks asked_ = 0;
};

}  // namespace penstock::detail
