// SPDX-License-Identifier: Apache-2.0
#pragma once

// Converts between the parameters of graph nodes in CUDA's structs and the work of the nodes
// (NodeAction). The parameters are checked like those of the stream calls for the same work. In the
// other direction, a copy or a fill gives the simplest parameters with the same meaning.

#include <cuda_runtime_api.h>

#include "copy_calls.hpp"
#include "graph.hpp"
#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

cudaError_t to_action(const Call& call, const cudaMemcpy3DParms* params, NodeAction& action);
/// A copy of no bytes is an error, because it cannot be a node.
cudaError_t to_action(const Call& call, const CopyRequest& request, NodeAction& action);
cudaError_t to_action(const Call& call, const cudaMemsetParams* params, NodeAction& action);
cudaError_t to_action(const cudaHostNodeParams* params, NodeAction& action);
/// `type` is a node that records the event or one that waits for it.
cudaError_t to_action(const Call& call, cudaGraphNodeType type, cudaEvent_t event,
                      NodeAction& action);
/// Converts every type except those that change the graph itself: child graphs, allocations and
/// frees.
cudaError_t to_action(const Call& call, const cudaGraphNodeParams& params, NodeAction& action);

/// Whether all fields that this type of node does not use are zero.
bool rest_is_zero(const cudaGraphNodeParams& params);

cudaMemcpy3DParms copy_params(const CopyWork& work);
/// A fill of a box whose slices are not contiguous cannot be a memset node: cudaErrorNotSupported.
cudaError_t fill_params(const FillWork& work, cudaMemsetParams& params);
cudaMemAllocNodeParams allocation_params(const Memory& memory, const GraphNode& node);

}  // namespace penstock::emulation::detail
