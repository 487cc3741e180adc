// SPDX-License-Identifier: Apache-2.0
#pragma once

// The numbers of the random schedule. They are a pure function of the seed, the stream and the
// task, so the same seed gives the same delays however the threads run.

#include <chrono>
#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// Returns 64 well-mixed bits: the finalizer of SplitMix64, applied once for each number.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t task) {
  std::uint64_t bits = seed;
  for (const std::uint64_t number : {stream, task}) {
    bits += number + 0x9e3779b97f4a7c15ULL;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
    bits ^= bits >> 31;
  }
  return bits;
}

/// Returns no delay for every second task, up to 100 microseconds for most others, and up to 400
/// for a few.
constexpr std::chrono::nanoseconds random_delay(std::uint64_t bits) {
  if ((bits & 1) != 0) return {};
  const std::uint64_t longest = (bits & 0xe) == 0 ? 400'000 : 100'000;
  return std::chrono::nanoseconds((bits >> 8) % longest);
}

}  // namespace penstock::emulation::detail
