// SPDX-License-Identifier: Apache-2.0
#pragma once

// The layers, the loss and the optimizer in float, compiled in layers_in_float.cpp alone: who
// includes this header calls them, and has no loops of theirs.

#include "cross_entropy.hpp"
#include "linear.hpp"
#include "pooling.hpp"
#include "sgd.hpp"

namespace resnet::reference {

extern template void max_pool(const PoolShape&, Format, const float*, float*, std::uint8_t*, int);
extern template void max_pool_gradient(const PoolShape&, Format, const std::uint8_t*, const float*,
                                       const float*, float*, int);
extern template void average_pool(const ActivationLayout&, const float*, float*, int);
extern template void average_pool_gradient(const ActivationLayout&, const float*, float*, int);

extern template void linear(const LinearShape&, const float*, const float*, const float*, float*,
                            int);
extern template void linear_gradient(const LinearShape&, const float*, const float*, const float*,
                                     float*, float*, float*, int);

extern template LossSums cross_entropy(std::int64_t, std::int64_t, const float*,
                                       const std::int32_t*, double, float*);

/// In place: each value becomes a number of the precision. (fp32 and tf32 change nothing.)
void round_all(Precision precision, float* values, std::int64_t count, int threads);

extern template void update(const Update<float>&, std::int64_t, const float*, float*, float*, int);
extern template bool all_finite(std::int64_t, const float*);

}  // namespace resnet::reference
