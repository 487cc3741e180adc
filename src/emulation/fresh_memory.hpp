// SPDX-License-Identifier: Apache-2.0
#pragma once

// What memory holds before the program has written it. CUDA leaves that open, and on a GPU it is
// whatever was there before: a program that forgets a cudaMemset may still see zeros for years.
// Here it is never zero, and another byte under each schedule, so that such a program gives
// different results.

#include <cstddef>
#include <penstock/emulation.hpp>

namespace penstock::emulation::detail {

/// The byte that fresh memory is full of: 0xff under eager, 0x7f under lazy, one of 0xc0 to 0xfe
/// under random, by the seed. As a float none of them is small: 0xff is not a number.
unsigned char fresh_byte(const Options& options);

/// Maps memory that is full of one byte. Private memory costs pages only where it is written: it is
/// a copy-on-write mapping of one small file in memory, again and again.
class FreshMemory {
 public:
  explicit FreshMemory(unsigned char value);

  /// Maps whole pages at this address, over what is mapped there. `sharing`: MAP_PRIVATE, or
  /// MAP_SHARED for memory that is filled at once. False: the system has no more.
  bool map(void* address, std::size_t bytes, int sharing) const;
  /// Writes the byte everywhere: for memory that is not private.
  void fill(void* data, std::size_t bytes) const;
  /// Makes private memory fresh that was used before. What was not written stays without pages.
  void renew(void* data, std::size_t bytes) const;

 private:
  unsigned char value_;
  int file_;  // -1: there is none, private memory is filled as well
};

}  // namespace penstock::emulation::detail
