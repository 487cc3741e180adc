// SPDX-License-Identifier: Apache-2.0
//
// thrust::sequence of a CUDA policy, as a host function.
#pragma once

#include <numeric>
#include "host_algorithm.hpp"

THRUST_NAMESPACE_BEGIN
template <typename Policy, typename Iterator, typename Value>
void sequence(const Policy& policy, Iterator begin, Iterator end, Value first) {
  neighbours::run_in_stream(policy, [&] { std::iota(begin, end, first); });
}
THRUST_NAMESPACE_END
