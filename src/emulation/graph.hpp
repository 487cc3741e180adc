// SPDX-License-Identifier: Apache-2.0
#pragma once

// Graphs: what a stream captured (Graph), what is launched (GraphExec), and the objects of the
// program's that they keep alive (UserObject). A launch puts the nodes back into streams: a chain
// of nodes goes to the launching stream, every branch beside it to a stream of the graph's own, so
// that branches run at the same time and nothing but the graph's edges orders them. Used under the
// runtime's lock.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "annotations.hpp"
#include "event.hpp"
#include "memory.hpp"
#include "stream.hpp"
#include "task.hpp"

namespace penstock::emulation::detail {

class Runtime;
struct GraphBody;

// ---- User objects

class UserObject : public Counted {
 public:
  UserObject(void* data, cudaHostFn_t destroy, unsigned references)
      : data_(data), destroy_(destroy), references_(references) {}

  void retain(unsigned count) { references_ += count; }
  /// False when there are not that many references.
  bool release(unsigned count);
  bool unreferenced() const { return references_ == 0; }
  /// How to destroy the program's object, once unreferenced.
  HostWork destruction() const { return {destroy_, nullptr, nullptr, data_}; }
  /// A graph that refers to it was launched, the last time here.
  void used_by(const TaskEdgesPtr& launch) {
    if (launch) before_destruction_.emplace_back(launch, &launch->completed);
  }
  /// Every release, and what launched graphs do, happens before the destruction.
  const std::vector<std::shared_ptr<Edge>>& before_destruction() const {
    return before_destruction_;
  }

  std::uint64_t handle = 0;

 private:
  void* data_;
  cudaHostFn_t destroy_;
  std::uint64_t references_;
  const std::shared_ptr<Edge> released_ = detects_races() ? std::make_shared<Edge>() : nullptr;
  std::vector<std::shared_ptr<Edge>> before_destruction_{released_};
};

/// References that a graph holds.
class UserObjectRefs {
 public:
  explicit UserObjectRefs(Runtime& runtime) : runtime_(runtime) {}
  UserObjectRefs(const UserObjectRefs&) = delete;
  UserObjectRefs& operator=(const UserObjectRefs&) = delete;
  ~UserObjectRefs();

  void add(UserObject& object, unsigned count) { counts_[object.handle] += count; }
  /// One reference to each object of `other`, beside those that are here.
  void share(const UserObjectRefs& other);
  /// See UserObject.
  void used_by(const TaskEdgesPtr& launch);
  /// False when there are not that many. The references themselves are still to be released.
  bool remove(const UserObject& object, unsigned count);

 private:
  Runtime& runtime_;
  std::map<std::uint64_t, unsigned> counts_;  // by handle
};

// ---- Memory allocated inside a graph

/// Keeps its place for as long as a graph that allocates it, or an executable of one, exists.
class GraphMemory : public Counted {
 public:
  GraphMemory(Runtime& runtime, void* data);
  ~GraphMemory() override;

  void* data() const { return data_; }
  bool freed_in_graph = false;
  bool outlives_launch = false;  ///< launched, and the program has not freed it since

 private:
  Runtime& runtime_;
  void* data_;
};

// ---- Graphs

struct GraphNode : Counted {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  Work work = GraphWork{};
  Ref<Event> event;  ///< recorded or waited for outside the graph
  std::vector<GraphNode*> after;
  std::size_t index = 0;  ///< in its graph
  std::uint64_t handle = 0;
};

/// The nodes of a graph, each after those it depends on, and the memory that they allocate. Final
/// once the capture has ended, so that executables and parent graphs share it.
struct GraphBody : Counted {
  /// Whether a node allocates or frees memory: then there is one executable at a time.
  bool orders_memory() const;
  std::vector<Ref<GraphNode>> nodes;
  std::vector<Ref<GraphMemory>> memory;
};

class Graph : public Counted {
 public:
  explicit Graph(Runtime& runtime) : objects(runtime), runtime_(runtime), body_(new GraphBody) {}
  ~Graph() override;

  GraphNode& add(Ref<GraphNode> node);
  const Ref<GraphBody>& body() const { return body_; }

  UserObjectRefs objects;
  std::uint64_t handle = 0;

 private:
  Runtime& runtime_;
  Ref<GraphBody> body_;
};

/// A graph laid out for launching.
struct GraphPlan {
  struct Step {
    cudaGraphNodeType type;
    Work work;
    Ref<Event> event;
    std::vector<std::size_t> after;  ///< steps before this one
    std::size_t lane = 0;            ///< 0: the launching stream
  };
  std::vector<Step> steps;
  std::vector<Ref<GraphMemory>> memory;
  std::size_t lanes = 1;

  explicit GraphPlan(const GraphBody& body);

 private:
  void assign_lanes();
};

class GraphExec : public Counted {
 public:
  GraphExec(Runtime& runtime, const Graph& graph, bool frees_on_launch);
  ~GraphExec() override;

  bool is_of(const Graph& graph) const { return body_.get() == graph.body().get(); }
  /// Queues one launch behind what the stream holds, and behind the launch before.
  cudaError_t launch(Stream& stream, const char* name);
  /// Takes over what the nodes of `graph` do, if that is all that differs.
  void update(const Graph& graph, cudaGraphExecUpdateResultInfo& info);

 private:
  cudaError_t claim_memory();
  cudaGraphExecUpdateResult compare(const GraphBody& body, const GraphPlan& plan,
                                    cudaGraphExecUpdateResultInfo& info) const;
  void make_lanes(Stream& stream);
  void close_lanes();
  Stream& lane(std::size_t number, Stream& stream) const;
  Mark launch_step(const GraphPlan::Step& step, Stream& stream, const char* name,
                   const Mark& begin);

  Runtime& runtime_;
  Ref<GraphBody> body_;
  UserObjectRefs objects_;
  GraphPlan plan_;
  bool frees_on_launch_;
  std::vector<Ref<Stream>> lanes_;  // of lane 1 and up
  Mark last_launch_;

  // Of the launch that is being queued; members, so that a launch allocates nothing.
  std::vector<Mark> ends_;       // of each step so far
  std::vector<Mark> lane_ends_;  // of each lane; unset while it has had no step
};

}  // namespace penstock::emulation::detail
