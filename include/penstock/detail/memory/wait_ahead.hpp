// SPDX-License-Identifier: Apache-2.0
#pragma once

// WaitAhead: how a thread waits for a block of a pool that it wants ahead of a consumer: as long as
// it takes. The pool's time-out counts only while the consumer waits for that block, too.

#include <cstdint>
#include <exception>

namespace penstock::detail {

class WaitAhead {
 public:
  /// The number of the consumer's call, from 1, that waits and that only a block can help; 0: there
  /// is none. The pool asks again and again, with its lock.
  virtual std::uint64_t held_up() const noexcept = 0;
  /// That was `call` for as long as the pool's time-out: `error` is a PoolExhausted. It may have
  /// ended meanwhile. The wait goes on.
  virtual void timed_out(std::uint64_t call, std::exception_ptr error) noexcept = 0;

 protected:
  ~WaitAhead() = default;
};

}  // namespace penstock::detail
