// SPDX-License-Identifier: Apache-2.0
#pragma once

// The contents of memory that the program has not written yet. CUDA does not define them, and on a
// GPU they are what was there before, so a program that forgets a cudaMemset may see zeros for
// years. Here they are never zero and differ between the schedules, so such a program gives
// different results.

#include <cstddef>
#include <penstock/emulation.hpp>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// Returns the byte that fills fresh memory: 0xff under eager, 0x7f under lazy, and one of 0xc0 to
/// 0xfe under random, chosen by the seed. A float of these bytes is never small; 0xff gives NaN.
unsigned char fresh_byte(const Options& options);

/// Maps memory that is filled with one byte. Private memory needs pages only where it is written,
/// since it consists of repeated copy-on-write mappings of one small file in memory.
class FreshMemory {
 public:
  explicit FreshMemory(unsigned char value);

  /// Maps whole pages at this address and replaces what is mapped there. `sharing`: MAP_PRIVATE, or
  /// MAP_SHARED for memory that is filled at once. Returns false if the system has no more memory.
  bool map(void* address, std::size_t bytes, int sharing) const;
  /// Writes the byte everywhere. It is for memory that is not private.
  void fill(void* data, std::size_t bytes) const;
  /// Makes used private memory fresh again. Parts that were not written still need no pages.
  void renew(void* data, std::size_t bytes) const;

 private:
  unsigned char value_;
  int file_;  // -1: there is no file, and private memory is filled as well
};

}  // namespace penstock::emulation::detail
