// SPDX-License-Identifier: Apache-2.0
#pragma once

// ConsumerCalls: since when the consumer waits for a batch, where several of its threads may call
// next() at a time: from the first of these calls, or from the last batch that one of them got.

#include <penstock/detail/observe/ticks.hpp>

namespace penstock::detail {

class ConsumerCalls {
 public:
  /// Lives as long as a call of next(). All of them begin and end under one lock, and one that
  /// waits releases it meanwhile.
  class [[nodiscard]] Call {
   public:
    explicit Call(ConsumerCalls& calls) : calls_(calls) {
      if (calls_.count_++ == 0) calls_.asked_ = ticks();
    }
    ~Call() { --calls_.count_; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    Ticks asked() const { return calls_.asked_; }
    /// This call has got a batch.
    void taken(Ticks now) { calls_.asked_ = now; }

   private:
    ConsumerCalls& calls_;
  };

 private:
  int count_ = 0;  // that live
  Ticks asked_ = 0;
};

}  // namespace penstock::detail
