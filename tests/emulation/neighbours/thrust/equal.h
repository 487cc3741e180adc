// SPDX-License-Identifier: Apache-2.0
//
// thrust::equal of a CUDA policy, as a host function.
#pragma once

#include <algorithm>
#include "host_algorithm.hpp"

THRUST_NAMESPACE_BEGIN
template <typename Policy, typename Iterator, typename Other>
bool equal(const Policy& policy, Iterator begin, Iterator end, Other other) {
  bool result = false;
  neighbours::run_in_stream(policy, [&] { result = std::equal(begin, end, other); });
  return result;
}
THRUST_NAMESPACE_END
