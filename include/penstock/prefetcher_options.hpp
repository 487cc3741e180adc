// SPDX-License-Identifier: Apache-2.0
#pragma once

// PrefetcherOptions: how a Prefetcher makes batches and brings them to the device.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/default_workers.hpp>
#include <penstock/failure.hpp>
#include <penstock/placement.hpp>
#include <penstock/read_ahead.hpp>
#include <penstock/tune.hpp>
#include <penstock/upstream.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// The settings of a Prefetcher.
struct PrefetcherOptions {
  /// Threads that run the source; 0: one. Default: the cores that this process may use, less one.
  /// Ranks on one machine that no launcher has bound to cores: an equal part of them, less one.
  int workers = detail::default_workers();
  /// Blocks of pinned memory, for one batch each. 0: device_depth + workers, or device_depth + 2
  /// for a per_sample source; with `tune` it starts with workers + 1, or device_depth + 2. Ignored
  /// for an on_device source, which needs none.
  std::size_t host_depth = 0;
  std::size_t device_depth = 2;  ///< device slots: batches on the device, leased ones included
  /// Epochs of the whole run, at least 1: times that all samples are delivered. It counts from
  /// epoch 0, also where the run is resumed: from a state at epoch 3 on, 10 delivers the rest of
  /// epoch 3 and epochs 4 to 9.
  std::uint64_t epochs = 1;
  bool ordered = true;  ///< batches come in their order; false: as they become ready
  FailurePolicy on_failure = FailurePolicy::abort();  ///< what to do with a batch that fails
  /// `next` throws StallError after this wait, which begins anew when another thread gets a batch;
  /// 0 or milliseconds::max(): never. The time in which the process is stopped (SIGSTOP, a
  /// suspended machine) does not count.
  std::chrono::milliseconds stall_timeout{300'000};
  std::size_t max_host_bytes = 0;  ///< limit on pinned memory; 0: half of what this process may use
  unsigned host_flags = cudaHostAllocPortable;  ///< flags passed to cudaHostAlloc
  /// NUMA node of the pinned memory; -1: that of the placement, if any. With a node,
  /// host_flags may have cudaHostAllocPortable and cudaHostAllocMapped only.
  int numa_node = -1;
  /// Cores of the workers: near the device, where a machine has several NUMA nodes.
  Placement placement = Placement::automatic();
  /// Where the memory comes from, instead of cudaHostAlloc and cudaMalloc. With host_memory,
  /// host_flags and numa_node have to be left as they are.
  Upstream host_memory = {}, device_memory = {};
  /// Priority of the copy stream, and of the workers' streams of an on_device source. Lower is more
  /// urgent; CUDA clamps it to the device's range. The kernels of an urgent transform or source
  /// start before those of a less urgent consumer that wait for a multiprocessor too.
  int copy_priority = 0;
  /// Measures with timed events how long a copy takes, what it waits for, and how long the
  /// consumer's stream has no work: stats() returns the times. Costs four more event records for
  /// each batch, and reading events that were reached: see docs/stats.md. Without, both are
  /// sampled.
  bool device_times = false;
  /// Finds the number of workers that run, and of batches ahead, while the pipeline runs, within
  /// these bounds (see Tune). `workers` (as far as the bound allows), host_depth and device_depth
  /// are then where it starts. Everything within the bounds is reserved at construction. Throws
  /// std::invalid_argument where a bound is below host_depth or device_depth, or
  /// over max_host_bytes.
  std::optional<Tune> tune = {};
  // Last: where an initialiser behind it may throw, g++ 12 and 13 take it for uninitialised at -O3.
  ReadAhead read_ahead = {};  ///< tells a store of the batches that come later
};

}  // namespace penstock
