// SPDX-License-Identifier: Apache-2.0
#pragma once

// PipelineHandle: what a Prefetcher, its leases and a BatchProducer hold. It is independent of the
// type of the batches.

#include <memory>
#include <penstock/failure.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

class Pipeline;
/// Shared by a Prefetcher and its leases; a BatchProducer's is its own.
using PipelineHandle = std::shared_ptr<Pipeline>;

/// Destroys a pipeline, but for what its leases need. In a forked child it does nothing. Where this
/// thread returns into the pipeline, which has called the destructor of its owner, it is leaked.
void close(PipelineHandle& pipeline) noexcept;
/// The first failures that the failure policy has handled. Any thread.
std::vector<Failure> failures(const Pipeline& pipeline);

}  // namespace penstock::detail
