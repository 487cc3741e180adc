// SPDX-License-Identifier: Apache-2.0
#pragma once

// What inference does besides convolutions and the last layer, on the CPU; ../inference.hpp says
// what is computed. Whatever is no int8 lies in memory as floats.

#include <cstdint>

#include "../inference.hpp"
#include "layout.hpp"

namespace resnet::reference {

void round_all(Precision precision, const float* in, float* out, std::int64_t count);

/// T: float or std::uint8_t.
template <class T>
void convert_images(const ImageInput& input, Precision precision, Format format, const T* images,
                    float* x, int threads);

void max_pool(const PoolShape& shape, Format format, Precision precision, const void* x, void* y,
              int threads);

void average_pool(const ActivationLayout& layout, Precision precision, const void* x, float scale,
                  float* y, int threads);

}  // namespace resnet::reference
