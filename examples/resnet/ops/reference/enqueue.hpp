// SPDX-License-Identifier: Apache-2.0
#pragma once

// enqueue<kernel::average_pool>(stream, {reads(x, count), stores(y, outputs, precision)}, work):
// work() runs once, in stream order, as a kernel would, and touches what it says. What it stores is
// then rounded. The first name is what a trace shows.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <penstock/launch.hpp>
#include <utility>
#include <vector>

#include "layers_in_float.hpp"
#include "parallel.hpp"
#include "touched.hpp"

namespace resnet::reference {

/// What for_each calls.
template <class Work>
struct Kernel {
  std::vector<Range> touched;
  Work work;

  void operator()(std::int64_t) const {
    for (const Range& range : touched) tell(range);
    work();
    for (const Range& range : touched) round(range);
  }

 private:
  static void round(const Range& range) {
    if (range.memory == nullptr || range.precision == Precision::fp32) return;
    auto* const values = static_cast<float*>(const_cast<void*>(range.memory));
    round_all(range.precision, values, static_cast<std::int64_t>(range.bytes / sizeof(float)),
              default_threads());
  }
};

/// The names of the operations: a trace shows kernel::convolution<...>.
namespace kernel {

// NOLINTBEGIN(readability-identifier-naming): they are called as the kernels on a GPU are.
template <class Work>
struct average_pool : Kernel<Work> {};
template <class Work>
struct average_pool_gradient : Kernel<Work> {};
template <class Work>
struct batch_norm : Kernel<Work> {};
template <class Work>
struct batch_norm_apply : Kernel<Work> {};
template <class Work>
struct batch_norm_gradient : Kernel<Work> {};
template <class Work>
struct batch_norm_gradient_rest : Kernel<Work> {};
template <class Work>
struct batch_norm_gradient_sums : Kernel<Work> {};
template <class Work>
struct batch_norm_inference : Kernel<Work> {};
template <class Work>
struct batch_norm_max_pool : Kernel<Work> {};
template <class Work>
struct batch_norm_max_pool_gradient : Kernel<Work> {};
template <class Work>
struct batch_norm_merge : Kernel<Work> {};
template <class Work>
struct batch_norm_moments : Kernel<Work> {};
template <class Work>
struct convert : Kernel<Work> {};
template <class Work>
struct convolution : Kernel<Work> {};
template <class Work>
struct convolution_data_gradient : Kernel<Work> {};
template <class Work>
struct convolution_statistics : Kernel<Work> {};
template <class Work>
struct convolution_weight_gradient : Kernel<Work> {};
template <class Work>
struct cross_entropy : Kernel<Work> {};
template <class Work>
struct from_float : Kernel<Work> {};
template <class Work>
struct linear : Kernel<Work> {};
template <class Work>
struct linear_gradient : Kernel<Work> {};
template <class Work>
struct max_pool : Kernel<Work> {};
template <class Work>
struct max_pool_gradient : Kernel<Work> {};
template <class Work>
struct normalized_data_gradient : Kernel<Work> {};
template <class Work>
struct normalized_weight_gradient : Kernel<Work> {};
template <class Work>
struct sgd : Kernel<Work> {};
template <class Work>
struct to_float : Kernel<Work> {};
// NOLINTEND(readability-identifier-naming)

}  // namespace kernel

/// Does not wait. Throws CudaError. `work` must not throw. What it only knows when it runs, it
/// tells itself.
template <template <class> class Name, class Work>
void enqueue(cudaStream_t stream, std::vector<Range> touched, Work work) {
  penstock::for_each(stream, 1, Name<Work>{{std::move(touched), std::move(work)}});
}

}  // namespace resnet::reference
