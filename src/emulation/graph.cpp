// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <algorithm>
#include <utility>

#include "runtime.hpp"

namespace penstock::emulation::detail {

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

void UserObjectRefs::share(const UserObjectRefs& other) {
  for (const auto& [handle, count] : other.counts_) {
    UserObject* const object = runtime_.user_objects.find(handle);
    if (object == nullptr) continue;
    object->retain(1);
    add(*object, 1);
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

GraphMemory::GraphMemory(Runtime& runtime, void* data) : runtime_(runtime), data_(data) {
  runtime_.graph_memory[data] = this;
}

GraphMemory::~GraphMemory() {
  runtime_.graph_memory.erase(data_);
  runtime_.memory.release(data_);
}

// ---- Graphs

Graph::~Graph() {
  for (const Ref<GraphNode>& node : body_->nodes) runtime_.nodes.remove(node->handle);
}

bool GraphBody::orders_memory() const {
  return std::any_of(nodes.begin(), nodes.end(), [](const Ref<GraphNode>& node) {
    return node->type == cudaGraphNodeTypeMemAlloc || node->type == cudaGraphNodeTypeMemFree;
  });
}

GraphNode& Graph::add(Ref<GraphNode> node) {
  node->index = body_->nodes.size();
  node->handle = runtime_.nodes.add(node);
  body_->nodes.push_back(std::move(node));
  return *body_->nodes.back();
}

// ---- The plan

GraphPlan::GraphPlan(const GraphBody& body) : memory(body.memory) {
  for (const Ref<GraphNode>& node : body.nodes) {
    std::vector<std::size_t> after;
    for (const GraphNode* earlier : node->after) after.push_back(earlier->index);
    steps.push_back({node->type, node->work, node->event, std::move(after)});
  }
  assign_lanes();
}

/// A step continues the lane of a step that it depends on, if that is the last one there; so a
/// lane's order is never more than the graph's.
void GraphPlan::assign_lanes() {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> last;  // step of each lane
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::size_t lane = kNone;
    for (const std::size_t earlier : steps[i].after)
      if (last[steps[earlier].lane] == earlier) lane = std::min(lane, steps[earlier].lane);
    if (lane == kNone) {
      lane = last.size();
      last.push_back(i);
    }
    last[lane] = i;
    steps[i].lane = lane;
  }
  lanes = std::max<std::size_t>(1, last.size());
}

}  // namespace penstock::emulation::detail
