// SPDX-License-Identifier: Apache-2.0
#pragma once

// A graph as text that Graphviz draws. Used under the runtime's lock.

#include "graph.hpp"

namespace penstock::emulation::detail {

/// Types and edges of the nodes, child graphs as clusters; with `flags` (cudaGraphDebugDotFlags)
/// what the nodes do. False: the file cannot be written.
bool write_dot(const Graph& graph, const char* path, unsigned flags);

}  // namespace penstock::emulation::detail
