// SPDX-License-Identifier: Apache-2.0
#pragma once

// enqueue(stream, {reads(x, count), writes(y, count)}, work): work() runs once, in stream order, as
// a kernel would, and touches what it says.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <penstock/launch.hpp>
#include <utility>
#include <vector>

#include "touched.hpp"

namespace resnet::reference {

/// Does not wait. Throws CudaError. `work` must not throw. What it only knows when it runs, it
/// tells itself.
template <class Work>
void enqueue(cudaStream_t stream, std::vector<Range> touched, Work work) {
  penstock::for_each(stream, 1,
                     [touched = std::move(touched), work = std::move(work)](std::int64_t) {
                       for (const Range& range : touched) tell(range);
                       work();
                     });
}

}  // namespace resnet::reference
