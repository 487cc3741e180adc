// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parameters of graph nodes, as CUDA's structs have them, and what the nodes do (NodeAction).
// Parameters are checked as those of the calls that put the same work on a stream. The other way,
// a copy or a fill comes out as the plainest parameters that mean the same.

#include <cuda_runtime_api.h>

#include "copy_calls.hpp"
#include "graph.hpp"
#include "seam.hpp"

namespace penstock::emulation::detail {

cudaError_t to_action(const Call& call, const cudaMemcpy3DParms* params, NodeAction& action);
/// A copy of no bytes is an error, as it cannot be a node.
cudaError_t to_action(const Call& call, const CopyRequest& request, NodeAction& action);
cudaError_t to_action(const Call& call, const cudaMemsetParams* params, NodeAction& action);
cudaError_t to_action(const cudaHostNodeParams* params, NodeAction& action);
/// `type`: of a node that records the event, or waits for it.
cudaError_t to_action(const Call& call, cudaGraphNodeType type, cudaEvent_t event,
                      NodeAction& action);
/// Of any type but those that change the graph itself: child graphs, allocations and frees.
cudaError_t to_action(const Call& call, const cudaGraphNodeParams& params, NodeAction& action);

/// Whether all is zero that the type of node does not use.
bool rest_is_zero(const cudaGraphNodeParams& params);

cudaMemcpy3DParms copy_params(const CopyWork& work);
/// A fill of a box has no parameters of a memset node, unless its slices follow each other:
/// cudaErrorNotSupported.
cudaError_t fill_params(const FillWork& work, cudaMemsetParams& params);
cudaMemAllocNodeParams allocation_params(const Memory& memory, const GraphNode& node);

}  // namespace penstock::emulation::detail
