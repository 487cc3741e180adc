// SPDX-License-Identifier: Apache-2.0
#pragma once

// The first convolution of a network for large images, with its bias, ReLU and the max pool behind
// it, in one kernel of our own. cuDNN's engines are made for many channels: of the three here they
// make eight, and what lies before the pool is four times as large as what comes out.

#include <cuda_runtime_api.h>

#include "../inference.hpp"

namespace resnet::cudnn {

/// Whether the kernel does this: fp16 or bf16, nhwc, 4 channels (3 and padding) to 64, 7 x 7 at
/// every second pixel, ReLU; windows of 3 x 3 at every second element; on the current device
/// (compute capability 8.0 or later).
bool stem_is_supported(const InferenceConvolution&, Format, const PoolShape&);

/// Once for each device before the first stem(). Throws CudaError.
void prepare_stem();

/// y = max pool(relu(weights * x + bias)), n x out.h x out.w x 64. Sums are in float, and rounded
/// once. A NaN wins. Only what stem_is_supported() allows.
void stem(const InferenceConvolution&, const PoolShape&, const void* x, const ConvolutionOperands&,
          void* y, int multiprocessors, cudaStream_t);

}  // namespace resnet::cudnn
