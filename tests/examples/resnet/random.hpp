// SPDX-License-Identifier: Apache-2.0
#pragma once

// Numbers that make_vectors.py makes too, bit for bit: uniform(seed, index) in [-1, 1), a multiple
// of 2^-23, so that it is exact in float.

#include <cstdint>
#include <vector>

namespace resnet::test {

inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

inline double uniform(std::uint64_t seed, std::uint64_t index) {
  return static_cast<double>(mix(mix(seed) ^ index) >> 40) * 0x1p-23 - 1;
}

template <class T = double>
std::vector<T> random_values(std::uint64_t seed, std::int64_t count, double scale = 1,
                             double offset = 0) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<T>(offset + scale * uniform(seed, i));
  return values;
}

}  // namespace resnet::test
