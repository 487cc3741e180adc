// SPDX-License-Identifier: Apache-2.0
#pragma once

// Operations on each number by itself. They may write where they read.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "../ops.hpp"

namespace resnet::cudnn {

void from_float(Precision, const float* in, void* out, std::int64_t count, cudaStream_t);
void to_float(Precision, const void* in, float* out, std::int64_t count, cudaStream_t);
/// out = a + b
void add(Precision, const void* a, const void* b, void* out, std::int64_t count, cudaStream_t);
/// out = max(in, 0); NaN stays.
void relu(Precision, const void* in, void* out, std::int64_t count, cudaStream_t);
/// out = gradient where y, the ReLU's result, is not 0; else 0.
void relu_gradient(Precision, const void* y, const void* gradient, void* out, std::int64_t count,
                   cudaStream_t);
/// Numbers between -1 and 1 that look random: zeros would make a kernel seem faster than it is.
void fill_noise(Precision, void* out, std::int64_t count, cudaStream_t);

}  // namespace resnet::cudnn
