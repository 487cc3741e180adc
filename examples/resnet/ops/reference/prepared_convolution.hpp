// SPDX-License-Identifier: Apache-2.0
#pragma once

// A convolution for inference with what follows it, on the CPU; ../inference.hpp says what is
// computed, inference.hpp where it is rounded.
//
//   const PreparedConvolution plan(convolution, Format::nhwc);
//   std::vector<std::byte> scratch(plan.scratch(threads));
//   plan.run(fusion, x, operands, residual, y, {scratch.data(), threads});

#include <cstddef>
#include <optional>

#include "../inference.hpp"
#include "convolution.hpp"

namespace resnet::reference {

/// One image of a convolution: floats, or int8 of which the sums are computed in double.
struct PreparedConvolution {
  PreparedConvolution(const InferenceConvolution& key, Format format);

  /// Bytes of scratch memory: for the weights in double, then for each thread a result and, in
  /// int8, an image, with the convolution's own scratch memory.
  std::size_t scratch(int threads) const;
  void run(Fusion fusion, const void* x, const ConvolutionOperands& operands, const void* residual,
           void* y, const Scratch<std::byte>& scratch) const;

  InferenceConvolution convolution;
  Format format;
  std::optional<Convolution<float>> in_float;
  std::optional<Convolution<double>> in_integers;
};

}  // namespace resnet::reference
