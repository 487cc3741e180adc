// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "graph.hpp"
#include "runtime.hpp"

namespace penstock::emulation::detail {

GraphExec::GraphExec(Runtime& runtime, const Graph& graph, bool frees_on_launch)
    : runtime_(runtime),
      body_(graph.body()),
      objects_(runtime),
      plan_(*graph.body()),
      frees_on_launch_(frees_on_launch) {
  objects_.share(graph.objects);
}

GraphExec::~GraphExec() {
  objects_.used_by(last_launch_.edges);  // And so by the launches before, which it waited for.
  close_lanes();
}

void GraphExec::close_lanes() {
  for (const Ref<Stream>& lane : lanes_) runtime_.scheduler.close(*lane);
  lanes_.clear();
}

/// The streams for the branches, on the device of the launching stream and as urgent as it.
void GraphExec::make_lanes(Stream& stream) {
  const bool fit = !lanes_.empty() && &lanes_.front()->device == &stream.device;
  if (!fit) {
    close_lanes();
    while (lanes_.size() + 1 < plan_.lanes)
      lanes_.push_back(runtime_.create_branch_stream(stream.device));
  }
  for (const Ref<Stream>& lane : lanes_) {
    lane->number = stream.number;
    lane->priority = stream.priority;
  }
}

/// Memory that the graph allocates and does not free must have been freed since the last launch.
cudaError_t GraphExec::claim_memory() {
  for (const Ref<GraphMemory>& memory : plan_.memory)
    if (memory->outlives_launch && !frees_on_launch_) return cudaErrorInvalidValue;
  for (const Ref<GraphMemory>& memory : plan_.memory)
    memory->outlives_launch = !memory->freed_in_graph;
  return cudaSuccess;
}

Stream& GraphExec::lane(std::size_t number, Stream& stream) const {
  return number == 0 ? stream : *lanes_[number - 1];
}

/// Queues one step, behind the steps of other lanes that it depends on, or behind the begin.
Mark GraphExec::launch_step(const GraphPlan::Step& step, Stream& stream, const char* name,
                            const Mark& begin) {
  Task* const task = runtime_.scheduler.task(name, step.work);
  task->unmappings = kCheckAgain;
  task->counts = false;
  for (const std::size_t earlier : step.after)
    if (plan_.steps[earlier].lane != step.lane) task->after.push_back(ends_[earlier]);
  if (step.lane != 0 && !lane_ends_[step.lane].stream) task->after.push_back(begin);
  if (step.type == cudaGraphNodeTypeWaitEvent) task->after.push_back(step.event->last());
  if (step.type != cudaGraphNodeTypeEventRecord) return runtime_.scheduler.submit(stream, task);
  task->work = RecordWork{step.event->begin_record()};
  task->event = step.event;
  const Mark end = runtime_.scheduler.submit(stream, task);
  step.event->record(end);
  return end;
}

cudaError_t GraphExec::launch(Stream& stream, const char* name) {
  Scheduler& scheduler = runtime_.scheduler;
  make_lanes(stream);
  for (const GraphPlan::Step& step : plan_.steps)  // Nothing may be missing half-way.
    scheduler.prepare(lane(step.lane, stream), step.work);
  const cudaError_t status = claim_memory();
  if (status != cudaSuccess) return status;

  Task* const first = scheduler.task(name, GraphWork{});
  first->counts = false;
  first->after.push_back(last_launch_);
  const Mark begin = scheduler.submit(stream, first);

  ends_.clear();
  lane_ends_.assign(plan_.lanes, Mark{});
  for (const GraphPlan::Step& step : plan_.steps) {
    ends_.push_back(launch_step(step, lane(step.lane, stream), name, begin));
    lane_ends_[step.lane] = ends_.back();
  }

  Task* const last = scheduler.task(name, GraphWork{});
  for (std::size_t number = 1; number < plan_.lanes; ++number)
    last->after.push_back(lane_ends_[number]);
  last->kept_alive = Ref<Counted>(this);
  last_launch_ = scheduler.submit(stream, last);
  return cudaSuccess;
}

// ---- Updates

namespace {

cudaGraphNode_t handle_of(const GraphBody& body, std::size_t step) {
  return reinterpret_cast<cudaGraphNode_t>(body.nodes[step]->handle);
}

bool same_rows(const CopyWork& one, const CopyWork& other) {
  if (one.height * one.depth == 1 && other.height * other.depth == 1) return true;
  return one.width == other.width && one.height == other.height && one.depth == other.depth &&
         one.destination_pitch == other.destination_pitch &&
         one.source_pitch == other.source_pitch &&
         one.destination_slice == other.destination_slice && one.source_slice == other.source_slice;
}

bool same_rows(const FillWork& one, const FillWork& other) {
  if (one.height * one.depth == 1 && other.height * other.depth == 1) return true;
  return one.width == other.width && one.height == other.height && one.depth == other.depth &&
         one.pitch == other.pitch && one.slice == other.slice;
}

/// Whether a node may become the other by an update: addresses, values and the length of flat
/// copies and fills may change, the memory that is meant and the rows of either may not.
bool updatable(const Work& from, const Work& to) {
  if (const auto* copy = std::get_if<CopyWork>(&from)) {
    const auto& other = std::get<CopyWork>(to);
    return copy->direction == other.direction && copy->to == other.to && copy->from == other.from &&
           same_rows(*copy, other);
  }
  if (const auto* fill = std::get_if<FillWork>(&from)) {
    const auto& other = std::get<FillWork>(to);
    return fill->place == other.place && same_rows(*fill, other);
  }
  return true;
}

}  // namespace

/// The first difference that an update may not make, with the nodes of the other graph in `info`.
cudaGraphExecUpdateResult GraphExec::compare(const GraphBody& body, const GraphPlan& plan,
                                             cudaGraphExecUpdateResultInfo& info) const {
  if (plan.steps.size() != plan_.steps.size()) return cudaGraphExecUpdateErrorTopologyChanged;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const GraphPlan::Step &old = plan_.steps[i], &step = plan.steps[i];
    info.errorNode = handle_of(body, i);
    if (step.type != old.type) return cudaGraphExecUpdateErrorNodeTypeChanged;
    if (step.after.size() != old.after.size()) return cudaGraphExecUpdateErrorTopologyChanged;
    for (std::size_t edge = 0; edge < step.after.size(); ++edge) {
      if (step.after[edge] == old.after[edge]) continue;
      info.errorFromNode = handle_of(body, step.after[edge]);
      return cudaGraphExecUpdateErrorTopologyChanged;
    }
    const bool of_memory =
        step.type == cudaGraphNodeTypeMemAlloc || step.type == cudaGraphNodeTypeMemFree;
    if (of_memory) return cudaGraphExecUpdateErrorNotSupported;
    if (!updatable(old.work, step.work)) return cudaGraphExecUpdateErrorParametersChanged;
  }
  info.errorNode = nullptr;
  return cudaGraphExecUpdateSuccess;
}

void GraphExec::update(const Graph& graph, cudaGraphExecUpdateResultInfo& info) {
  GraphPlan plan(*graph.body());
  info = {};
  info.result = compare(*graph.body(), plan, info);
  if (info.result != cudaGraphExecUpdateSuccess) return;
  plan_ = std::move(plan);
  body_ = graph.body();
  objects_.share(graph.objects);
}

}  // namespace penstock::emulation::detail
