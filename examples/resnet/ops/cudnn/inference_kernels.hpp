// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is behind a convolution whose engine does not do it itself, and what int8 adds to the
// operations of training. See inference.hpp. Kernels of our own; none uses a workspace.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../inference.hpp"
#include "context.hpp"

namespace resnet::cudnn {

/// How numbers lie in memory. (Sums of int8 products are int32 before anything is done with them.)
enum class Number { fp32, fp16, bf16, int8, int32 };
Number number_of(Precision);
std::size_t bytes_of(Number);

/// y = [relu](scale * x + bias + residual_scale * residual), with what is not null. y may be x
/// where their numbers are of one size, and may be the residual.
struct Finish {
  Number x_number, y_number, residual_number;
  const void* x = nullptr;
  void* y = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
  const void* residual = nullptr;
  const float* residual_scale = nullptr;
  bool relu = false;
};
/// Throws UnsupportedOperation for numbers that no convolution here has.
void finish(Format, const Extents&, const Finish&, cudaStream_t);

/// Adds to *wrong how many of some thousand of `sums` are not those of the convolution of x by
/// weights: int8 in nhwc, where a sum is exact or wrong.
void count_wrong_sums(const ConvolutionShape&, const void* x, const void* weights, const void* sums,
                      int* wrong, cudaStream_t);

/// Without noting which element was chosen.
void max_pool_values(const PoolShape&, Precision, Format, const void* x, void* y, cudaStream_t);
/// nhwc; y is fp16.
void average_pool_int8(const Extents&, const void* x, float scale, void* y, cudaStream_t);

/// `to`: with the padded channels.
void convert(const ImageInput&, const float* images, const Extents& to, Precision, Format, void* x,
             cudaStream_t);
void convert(const ImageInput&, const std::uint8_t* images, const Extents& to, Precision, Format,
             void* x, cudaStream_t);

}  // namespace resnet::cudnn
