// SPDX-License-Identifier: Apache-2.0
#include "layers_in_float.hpp"

#include <algorithm>

#include "parallel.hpp"
#include "rounding.hpp"

namespace resnet::reference {
namespace {

template <float (*round)(float)>
void round_each(float* values, std::int64_t count, int threads) {
  constexpr std::int64_t block = 1 << 14;
  parallel_for(threads, (count + block - 1) / block, [&](std::int64_t index, int) {
    float* const begin = values + index * block;
    std::transform(begin, begin + std::min(block, count - index * block), begin, round);
  });
}

}  // namespace

void round_all(Precision precision, float* values, std::int64_t count, int threads) {
  if (precision == Precision::fp16) round_each<rounded_to_half>(values, count, threads);
  if (precision == Precision::bf16) round_each<rounded_to_bfloat>(values, count, threads);
}

template void max_pool(const PoolShape&, Format, const float*, float*, std::uint8_t*, int);
template void max_pool_gradient(const PoolShape&, Format, const std::uint8_t*, const float*,
                                const float*, float*, int);
template void average_pool(const ActivationLayout&, const float*, float*, int);
template void average_pool_gradient(const ActivationLayout&, const float*, float*, int);

template void linear(const LinearShape&, const float*, const float*, const float*, float*, int);
template void linear_gradient(const LinearShape&, const float*, const float*, const float*, float*,
                              float*, float*, int);

template LossSums cross_entropy(std::int64_t, std::int64_t, const float*, const std::int32_t*,
                                double, float*);

template void update(const Update<float>&, std::int64_t, const float*, float*, float*, int);
template bool all_finite(std::int64_t, const float*);

}  // namespace resnet::reference
