// SPDX-License-Identifier: Apache-2.0
#pragma once

// WaitAhead: lets a thread that works ahead of a consumer wait for a block of a pool without limit.
// The pool's time-out runs only while the consumer also waits for that block.

#include <cstdint>
#include <exception>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

class WaitAhead {
 public:
  /// Returns the number, from 1, of the consumer's call that waits and that only a block can end; 0
  /// if there is none. The pool calls this repeatedly, with its lock held.
  virtual std::uint64_t held_up() const noexcept = 0;
  /// Reports that `call` has been held up for the pool's time-out. `error` is a PoolExhausted. The
  /// call may have ended meanwhile. The wait for the block continues.
  virtual void timed_out(std::uint64_t call, std::exception_ptr error) noexcept = 0;

 protected:
  ~WaitAhead() = default;
};

}  // namespace penstock::detail
