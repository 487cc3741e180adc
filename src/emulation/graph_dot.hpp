// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes a graph in the language of Graphviz. Use it with the runtime's lock held.

#include "graph.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// Writes the types and edges of the nodes, with child graphs as clusters. `flags`
/// (cudaGraphDebugDotFlags) add the actions of the nodes. Returns false if the file cannot be
/// written.
bool write_dot(const Graph& graph, const char* path, unsigned flags);

}  // namespace penstock::emulation::detail
