// SPDX-License-Identifier: Apache-2.0
#pragma once

// The weights of the input pixels for the outputs of one direction: which input pixels each output
// uses, and with which weight.

#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::images {

/// One direction of a view: a region [begin, end), and outputs with centres at origin + (i + 0.5) *
/// step, all of which lie in the region.
struct ResizeAxis {
  std::int32_t begin, end;
  double origin, step;
  std::int32_t outputs;
};

/// Weights are integers; 2^bits means 1. The weights of an output add up to exactly 1, so an image
/// of one colour keeps its colour.
struct ResizeTaps {
  std::int32_t count = 0;             ///< weights of each output, padded with weights of 0
  int bits = 0;                       ///< at most 22, so that sums of bytes fit into 32 bits
  std::int32_t begin = 0, end = 0;    ///< the range of all input pixels with a weight
  std::vector<std::int32_t> first;    ///< by output: the pixel of its first weight, minus `begin`
  std::vector<std::int16_t> weights;  ///< outputs x count

  /// `count` becomes a multiple of `multiple`. With `reversed`, the last output comes first.
  /// Allocates only if there are more weights than ever before.
  void find(const ResizeAxis& axis, std::int32_t multiple, bool reversed = false);

  const std::int16_t* weights_of(std::size_t output) const {
    return weights.data() + output * static_cast<std::size_t>(count);
  }

 private:
  double weigh(std::size_t output, double centre, double reach);
  void quantise(std::size_t output);

  std::vector<std::int32_t> lengths_;  // by output: number of weights without the padding
  std::vector<double> shares_;         // outputs x count, before the conversion to integers
};

}  // namespace penstock::images
