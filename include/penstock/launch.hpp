// SPDX-License-Identifier: Apache-2.0
#pragma once

// for_each(stream, n, op) calls op(i) for each i in [0, n), in stream order. Compiled by nvcc, it
// launches one kernel (cub::DeviceFor::Bulk). Compiled by a C++ compiler, it queues one host
// function on the stream, so that a small preprocessing step also runs over penstock::emulated,
// without a GPU. A program that uses the host form does not link with the real CUDA runtime.
//
//   struct Invert {
//     Images batch;
//     __host__ __device__ void operator()(std::int64_t i) const {
//       batch.pixels.data_handle()[i] = 255 - batch.pixels.data_handle()[i];
//     }
//   };
//   penstock::for_each(stream, batch->pixels.size(), Invert{*batch});
//
// Neither form blocks or synchronises. Both may be captured into a graph. `op` is copied, and the
// order of the calls is unspecified. For a kernel, the stream's device must be current, and `op`
// must be trivially copyable. Throws CudaError if the launch fails, and std::invalid_argument if n
// is negative.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#ifdef __CUDACC__
#include <penstock/detail/bulk_launch.hpp>
#else
#include <penstock/detail/pipeline/host_task.hpp>
#endif

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

inline void check_count(std::int64_t n) {
  if (n < 0) throw std::invalid_argument("for_each: n is " + std::to_string(n));
}

}  // namespace detail

// The two forms are different functions in two inline namespaces, so a program may contain both.
#ifdef __CUDACC__
inline namespace device_launch {

/// The stream's device must be current. `op` must be trivially copyable, like every argument of a
/// kernel.
template <class Op>
[[gnu::always_inline]] inline void for_each(StreamRef on, std::int64_t n, Op op) {
  const cudaStream_t stream = detail::named(on);
  detail::check_count(n);
  if (n == 0) return;
  detail::check(detail::launch_bulk(n, std::move(op), stream), "cub::DeviceFor::Bulk", n);
}

}  // namespace device_launch
#else
inline namespace host_launch {

/// `op` runs on a thread of the CUDA runtime. Neither it nor its destructor may call CUDA or wait
/// for other work that does; an exception that leaves it terminates the program. A captured `op`
/// runs at each launch of the graph, and is the same object each time. If a device error prevents
/// CUDA from ever running it, its memory is leaked.
template <class Op>
requires std::is_invocable_v<Op&, std::int64_t>
[[gnu::always_inline]] inline void for_each(StreamRef on, std::int64_t n, Op op) {
  const cudaStream_t stream = detail::named(on);
  using Task = detail::HostTask<Op>;
  detail::for_each_on_the_real_cuda_runtime_has_to_be_compiled_by_nvcc();
  detail::check_count(n);
  if (n == 0) return;
  std::unique_ptr<Task> task(new Task{n, std::move(op)});
  if (const cudaGraph_t graph = detail::capturing_graph(stream)) {
    Task* captured = detail::give_to_graph(graph, std::move(task));
    detail::check(cudaLaunchHostFunc(stream, &Task::run_again, captured), "cudaLaunchHostFunc", n);
  } else {
    detail::check(cudaLaunchHostFunc(stream, &Task::run_once, task.get()), "cudaLaunchHostFunc", n);
    static_cast<void>(task.release());  // The host function owns it now.
  }
}

}  // namespace host_launch
#endif

}  // namespace penstock
