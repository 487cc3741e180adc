// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the output of one direction is made of: for each output pixel, which input pixels, and how
// much of each.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::images {

/// One direction of a view: a region [begin, end), and outputs with centres at
/// origin + (i + 0.5) * step, all of which lie in it.
struct ResizeAxis {
  std::int32_t begin, end;
  double origin, step;
  std::int32_t outputs;
};

/// Weights are integers, 2^bits of which are 1. Those of an output are exactly 1 together, so one
/// colour stays that colour.
struct ResizeTaps {
  std::int32_t count = 0;             ///< of each output, filled up with weights of 0
  int bits = 0;                       ///< at most 22: sums of bytes fit into 32 bits
  std::int32_t begin = 0, end = 0;    ///< of all input pixels with a weight
  std::vector<std::int32_t> first;    ///< by output: the pixel of its first weight, from `begin` on
  std::vector<std::int16_t> weights;  ///< outputs x count

  /// `count` becomes a multiple of `multiple`. Reversed: the last output comes first. Allocates if
  /// there never were as many.
  void find(const ResizeAxis& axis, std::int32_t multiple, bool reversed = false);

  const std::int16_t* weights_of(std::size_t output) const {
    return weights.data() + output * static_cast<std::size_t>(count);
  }

 private:
  double weigh(std::size_t output, double centre, double reach);
  void quantise(std::size_t output);

  std::vector<std::int32_t> lengths_;  // by output: weights that are not filling
  std::vector<double> shares_;         // outputs x count, before they are made integers
};

}  // namespace penstock::images
