// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), a
// counter and a mixer. Small, and the same on every machine, unlike the distributions of std::.

#include <cstdint>

namespace example_data {

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream, std::uint64_t index)
      : state_(mix(mix(mix(seed) ^ stream) ^ index)) {}

  std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15u); }

  /// Uniform in [low, high], both included.
  int between(int low, int high) {
    const auto range = static_cast<std::uint64_t>(high - low) + 1;
    return low + static_cast<int>((next() >> 32) * range >> 32);
  }

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

  std::uint64_t state_;
};

}  // namespace example_data
