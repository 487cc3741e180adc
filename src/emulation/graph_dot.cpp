// SPDX-License-Identifier: Apache-2.0
#include "graph_dot.hpp"

#include <cstdint>
#include <fstream>
#include <string>
#include <variant>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

const char* name_of(cudaGraphNodeType type) {
  switch (type) {
    case cudaGraphNodeTypeMemcpy:
      return "MEMCPY";
    case cudaGraphNodeTypeMemset:
      return "MEMSET";
    case cudaGraphNodeTypeHost:
      return "HOST";
    case cudaGraphNodeTypeGraph:
      return "GRAPH";
    case cudaGraphNodeTypeWaitEvent:
      return "EVENT_WAIT";
    case cudaGraphNodeTypeEventRecord:
      return "EVENT_RECORD";
    case cudaGraphNodeTypeMemAlloc:
      return "MEM_ALLOC";
    case cudaGraphNodeTypeMemFree:
      return "MEM_FREE";
    default:
      return "EMPTY";
  }
}

const char* name_of(cudaMemcpyKind direction) {
  switch (direction) {
    case cudaMemcpyHostToDevice:
      return "HtoD";
    case cudaMemcpyDeviceToHost:
      return "DtoH";
    case cudaMemcpyDeviceToDevice:
      return "DtoD";
    default:
      return "HtoH";
  }
}

/// Collects the parameters of a node; each is a line of its label.
class Parameters {
 public:
  Parameters(std::ostream& out, unsigned flags) : out_(out), flags_(flags) {}

  void operator()(const CopyWork& copy) const {
    out_ << ' ' << name_of(copy.direction);
    if (wanted(cudaGraphDebugDotFlagsMemcpyNodeParams))
      out_ << "\\nfrom " << copy.source << "\\nto " << copy.destination << "\\n"
           << copy.bytes() << " bytes";
  }
  void operator()(const FillWork& fill) const {
    if (wanted(cudaGraphDebugDotFlagsMemsetNodeParams))
      out_ << "\\nat " << fill.destination << "\\nvalue " << fill.value << "\\n"
           << fill.bytes() << " bytes";
  }
  void operator()(const HostWork& host) const {
    if (wanted(cudaGraphDebugDotFlagsHostNodeParams))
      out_ << "\\nfunction " << reinterpret_cast<const void*>(host.function) << "\\ndata "
           << host.data;
  }
  void operator()(const AllocateWork& memory) const { tell(memory.data, memory.bytes); }
  void operator()(const FreeWork& memory) const { tell(memory.data, memory.bytes); }
  template <class Other>
  void operator()(const Other&) const {}

  bool wanted(unsigned flag) const {
    return (flags_ & (flag | cudaGraphDebugDotFlagsVerbose)) != 0;
  }

 private:
  void tell(const void* data, std::size_t bytes) const {
    if (wanted(0)) out_ << "\\nat " << data << "\\n" << bytes << " bytes";
  }

  std::ostream& out_;
  unsigned flags_;
};

/// Writes a graph. The names of its nodes begin with `name`.
void write(std::ostream& out, const Graph& graph, const std::string& name, unsigned flags) {
  const auto name_of_node = [&](const GraphNode* node) {
    std::size_t number = 0;
    while (graph.nodes()[number].get() != node) ++number;
    return name + "_node_" + std::to_string(number);
  };
  out << "subgraph cluster_" << name << " {\nlabel=\"" << name << "\" graph[style=\"dashed\"];\n";
  for (const Ref<GraphNode>& node : graph.nodes()) {
    const std::string node_name = name_of_node(node.get());
    const Parameters parameters(out, flags);
    out << '"' << node_name << "\"[label=\"" << node_name << "\\n" << name_of(node->action.type);
    std::visit(parameters, node->action.work);
    if (node->action.event && parameters.wanted(cudaGraphDebugDotFlagsEventNodeParams))
      out << "\\nevent 0x" << std::hex << node->action.event->handle << std::dec;
    if (parameters.wanted(cudaGraphDebugDotFlagsHandles))
      out << "\\nhandle 0x" << std::hex << node->handle << std::dec;
    out << "\"];\n";
    for (const GraphNode* earlier : node->after)
      out << '"' << name_of_node(earlier) << "\" -> \"" << node_name << "\";\n";
    if (node->child) write(out, *node->child, node_name + "_graph", flags);
  }
  out << "}\n";
}

}  // namespace

bool write_dot(const Graph& graph, const char* path, unsigned flags) {
  std::ofstream file(path);
  file << "digraph dot {\n";
  write(file, graph, "graph", flags);
  file << "}\n";
  return file.flush().good();
}

}  // namespace penstock::emulation::detail
