// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>

#include "runtime.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

// ---- User objects

bool UserObject::release(unsigned count) {
  if (count > references_) return false;
  references_ -= count;
  if (released_) released_->release();
  return true;
}

UserObjectRefs::~UserObjectRefs() {
  for (const auto& [handle, count] : counts_)
    if (UserObject* object = runtime_.user_objects.find(handle))
      runtime_.release_user_object(*object, count);
}

void UserObjectRefs::copy(const UserObjectRefs& other) {
  for (const auto& [handle, count] : other.counts_) {
    UserObject* const object = runtime_.user_objects.find(handle);
    if (object == nullptr) continue;
    object->retain(count);
    add(*object, count);
  }
}

void UserObjectRefs::used_by(const TaskEdgesPtr& launch) {
  for (const auto& [handle, count] : counts_)
    if (UserObject* object = runtime_.user_objects.find(handle)) object->used_by(launch);
}

bool UserObjectRefs::remove(const UserObject& object, unsigned count) {
  const auto found = counts_.find(object.handle);
  if (found == counts_.end() || found->second < count) return false;
  found->second -= count;
  if (found->second == 0) counts_.erase(found);
  return true;
}

// ---- Memory

GraphMemory::GraphMemory(Runtime& runtime, void* data, std::uint64_t owner)
    : runtime_(runtime), data_(data), owner_(owner) {
  runtime_.graph_memory[data] = this;
}

GraphMemory::~GraphMemory() {
  runtime_.graph_memory.erase(data_);
  runtime_.memory.release(data_);
}

// ---- Graphs

Graph::~Graph() {
  for (const Ref<GraphNode>& node : nodes_) {
    runtime_.nodes.remove(node->handle);
    if (node->child) runtime_.graphs.remove(node->child->handle);
  }
}

std::vector<const GraphNode*> Graph::in_order() const {
  std::unordered_map<const GraphNode*, std::size_t> number;
  for (const Ref<GraphNode>& node : nodes_) number.emplace(node.get(), number.size());
  std::vector<std::size_t> missing(nodes_.size());
  std::vector<std::vector<std::size_t>> dependents(nodes_.size());
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> next;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    missing[i] = nodes_[i]->after.size();
    if (missing[i] == 0) next.push(i);
    for (const GraphNode* earlier : nodes_[i]->after) dependents[number[earlier]].push_back(i);
  }
  std::vector<const GraphNode*> order;
  while (!next.empty()) {
    const std::size_t i = next.top();
    next.pop();
    order.push_back(nodes_[i].get());
    for (const std::size_t later : dependents[i])
      if (--missing[later] == 0) next.push(later);
  }
  return order;
}

GraphNode& Graph::add(NodeAction action, std::vector<GraphNode*> after) {
  Ref<GraphNode> node(new GraphNode(*this, std::move(action), std::move(after)));
  node->handle = runtime_.nodes.add(node);
  nodes_.push_back(std::move(node));
  return *nodes_.back();
}

GraphNode& Graph::add_child(const Ref<Graph>& child, Embedded how, std::vector<GraphNode*> after) {
  child->embedded = how;
  GraphNode& node = add({cudaGraphNodeTypeGraph}, std::move(after));
  node.child = child;
  return node;
}

cudaError_t Graph::add_allocation(Device& device, std::size_t bytes, std::vector<GraphNode*> after,
                                  GraphNode** node) {
  if (embedded != Embedded::no) return cudaErrorNotSupported;
  Allocation request;
  request.bytes = bytes;
  request.origin = Origin::graph;
  request.device = device.index;
  void* data = nullptr;
  const cudaError_t status =
      runtime_.allocate_on(device, [&] { return runtime_.memory.allocate(request, &data); });
  if (status != cudaSuccess) return status;
  allocated_.push_back(Ref<GraphMemory>(new GraphMemory(runtime_, data, handle)));
  *node = &add({cudaGraphNodeTypeMemAlloc, AllocateWork{data, bytes}}, std::move(after));
  return cudaSuccess;
}

cudaError_t Graph::add_free(void* data, std::vector<GraphNode*> after, GraphNode** node) {
  if (embedded != Embedded::no) return cudaErrorNotSupported;
  const auto found = runtime_.graph_memory.find(data);
  if (found == runtime_.graph_memory.end()) return cudaErrorInvalidValue;
  GraphMemory& memory = *found->second;
  const bool own = memory.owner() == handle;
  const bool again = std::any_of(freed_.begin(), freed_.end(),
                                 [&](const auto& freed) { return freed.get() == &memory; });
  if (again || (own ? memory.freed_by_other : memory.freed_by_owner)) return cudaErrorInvalidValue;
  (own ? memory.freed_by_owner : memory.freed_by_other) = true;
  freed_.push_back(Ref<GraphMemory>(&memory));
  const FreeWork work{data, runtime_.memory.at(data)->bytes};
  *node = &add({cudaGraphNodeTypeMemFree, work}, std::move(after));
  return cudaSuccess;
}

void Graph::remove(GraphNode& node) {
  runtime_.nodes.remove(node.handle);
  if (node.child) runtime_.graphs.remove(node.child->handle);
  for (const Ref<GraphNode>& other : nodes_) std::erase(other->after, &node);
  nodes_.erase(std::find_if(nodes_.begin(), nodes_.end(),
                            [&](const auto& other) { return other.get() == &node; }));
}

Ref<Graph> Graph::clone() const {
  Ref<Graph> copy = runtime_.create_graph();
  std::unordered_map<const GraphNode*, GraphNode*> twins;
  for (const Ref<GraphNode>& node : nodes_) {
    GraphNode& twin = node->child ? copy->add_child(node->child->clone(), Embedded::cloned, {})
                                  : copy->add(node->action, {});
    twin.cloned_from = node->handle;
    twins.emplace(node.get(), &twin);
  }
  for (const Ref<GraphNode>& node : nodes_)  // An edge may lead back to an older node.
    for (const GraphNode* earlier : node->after) twins[node.get()]->after.push_back(twins[earlier]);
  copy->objects.copy(objects);
  return copy;
}

bool Graph::orders_memory() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const Ref<GraphNode>& node) {
    return node->action.type == cudaGraphNodeTypeMemAlloc ||
           node->action.type == cudaGraphNodeTypeMemFree ||
           (node->child && node->child->orders_memory());
  });
}

}  // namespace penstock::emulation::detail
