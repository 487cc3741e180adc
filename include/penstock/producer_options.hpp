// SPDX-License-Identifier: Apache-2.0
#pragma once

// ProducerOptions: how a BatchProducer's workers fill batches.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <penstock/detail/default_workers.hpp>
#include <penstock/failure.hpp>
#include <penstock/read_ahead.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// The settings of a BatchProducer.
struct ProducerOptions {
  /// Threads that run the source; 0: one. Default: the cores that this process may use, less one.
  /// Ranks on one machine that no launcher has bound to cores: an equal part of them, less one.
  int workers = detail::default_workers();
  /// Limit on batches that are filled or being filled. 0: workers + 2, or 4 for a per_sample
  /// source.
  std::size_t depth = 0;
  /// Epochs of the whole run, at least 1: times that all samples are delivered. It counts from
  /// epoch 0, also where the sampler continues a run.
  std::uint64_t epochs = 1;
  bool ordered = true;  ///< batches come in their order; false: as they become ready
  FailurePolicy on_failure = FailurePolicy::abort();  ///< what to do with a batch that fails
  ReadAhead read_ahead = {};  ///< tells a store of the batches that come later
  /// Called by a worker after each batch; may not throw or wait.
  std::function<void()> on_ready = {};
};

}  // namespace penstock
