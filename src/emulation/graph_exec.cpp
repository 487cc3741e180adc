// SPDX-License-Identifier: Apache-2.0
#include "graph_exec.hpp"

#include <algorithm>
#include <utility>

#include "runtime.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

/// Returns the work of a step in a launch.
const Work& work_of(const GraphPlan::Step& step) {
  static const Work nothing = JoinWork{};
  return step.enabled ? step.action.work : nothing;
}

}  // namespace

GraphExec::GraphExec(Runtime& runtime, const Graph& graph, GraphPlan plan, unsigned long long flags)
    : runtime_(runtime),
      graph_(graph.handle),
      objects_(runtime),
      plan_(std::move(plan)),
      flags_(flags) {
  share_objects(graph);
}

GraphExec::~GraphExec() {
  // This also covers earlier launches, because the last one waited for them.
  objects_.used_by(last_launch_.edges);
  close_lanes();
}

void GraphExec::close_lanes() {
  for (const Ref<Stream>& lane : lanes_) runtime_.scheduler.close(*lane);
  lanes_.clear();
}

/// Makes the streams for the branches, with the device and the priority of the launching stream.
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

/// Checks that memory which the graph allocates and does not free has been freed since the last
/// launch, and that memory of other graphs which it frees is allocated.
cudaError_t GraphExec::claim_memory() {
  const bool frees_on_launch = (flags_ & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0;
  const auto allocates = [&](const Ref<GraphMemory>& memory) {
    return std::any_of(plan_.allocated.begin(), plan_.allocated.end(),
                       [&](const auto& own) { return own.get() == memory.get(); });
  };
  for (const Ref<GraphMemory>& memory : plan_.allocated)
    if (memory->outlives_launch && !frees_on_launch) return cudaErrorInvalidValue;
  for (const Ref<GraphMemory>& memory : plan_.freed)
    if (!allocates(memory) && !memory->outlives_launch) return cudaErrorInvalidValue;
  for (const Ref<GraphMemory>& memory : plan_.allocated) memory->outlives_launch = true;
  for (const Ref<GraphMemory>& memory : plan_.freed) memory->outlives_launch = false;
  return cudaSuccess;
}

Stream& GraphExec::lane(std::size_t number, Stream& stream) const {
  return number == 0 ? stream : *lanes_[number - 1];
}

/// Queues one step after the steps of other lanes that it depends on, or after the begin.
Mark GraphExec::launch_step(const GraphPlan::Step& step, Stream& stream, const char* name,
                            const Mark& begin) {
  Task* const task = runtime_.scheduler.task(name, work_of(step));
  task->unmappings = kCheckAgain;
  task->counts = false;
  for (const std::size_t earlier : step.after)
    if (plan_.steps[earlier].lane != step.lane) task->after.push_back(ends_[earlier]);
  if (step.lane != 0 && !lane_ends_[step.lane].stream) task->after.push_back(begin);
  const NodeAction& action = step.action;
  if (action.type == cudaGraphNodeTypeWaitEvent) action.event->hold(*task);
  if (action.type != cudaGraphNodeTypeEventRecord) return runtime_.scheduler.submit(stream, task);
  task->work = RecordWork{action.event->begin_record()};
  task->event = action.event;
  const Mark end = runtime_.scheduler.submit(stream, task);
  action.event->record(end);
  return end;
}

cudaError_t GraphExec::launch(Stream& stream, const char* name) {
  Scheduler& scheduler = runtime_.scheduler;
  make_lanes(stream);
  // Everything is checked and prepared first, so that a launch is never left incomplete.
  for (const GraphPlan::Step& step : plan_.steps) {
    const NodeAction& action = step.action;
    const bool waits =
        action.type == cudaGraphNodeTypeWaitEvent && action.event->shared() != nullptr;
    scheduler.prepare(lane(step.lane, stream), waits ? Work{WaitWork{1}} : work_of(step));
    if (action.event && action.event->gone()) return cudaErrorInvalidResourceHandle;
    if (action.type == cudaGraphNodeTypeEventRecord && action.event->full())
      return cudaErrorMemoryAllocation;
  }
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

bool flat(const Work& work) {
  if (const auto* copy = std::get_if<CopyWork>(&work)) return copy->height * copy->depth == 1;
  return true;
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

/// Whether an update may change one node into the other. It may change addresses, values and the
/// length of flat copies and fills, but not the kind of memory or the rows.
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

/// Returns the first difference that an update may not make, between the plan and the `count` steps
/// from `first` on. `info` receives the nodes of the other graph.
cudaGraphExecUpdateResult GraphExec::compare(const GraphPlan& plan, std::size_t first,
                                             std::size_t count,
                                             cudaGraphExecUpdateResultInfo& info) const {
  if (plan.steps.size() != count) return cudaGraphExecUpdateErrorTopologyChanged;
  const auto handle_of = [&](std::size_t step) {
    return reinterpret_cast<cudaGraphNode_t>(plan.steps[step].node);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const GraphPlan::Step &old = plan_.steps[first + i], &step = plan.steps[i];
    info.errorNode = handle_of(i);
    if (step.action.type != old.action.type) return cudaGraphExecUpdateErrorNodeTypeChanged;
    // The first steps of a child graph are ordered after its begin.
    const bool at_begin = old.after.empty() || (first > 0 && old.after.front() < first);
    const std::size_t edges = at_begin ? 0 : old.after.size();
    if (step.after.size() != edges) return cudaGraphExecUpdateErrorTopologyChanged;
    for (std::size_t edge = 0; edge < edges; ++edge) {
      if (first + step.after[edge] == old.after[edge]) continue;
      info.errorFromNode = handle_of(step.after[edge]);
      return cudaGraphExecUpdateErrorTopologyChanged;
    }
    const bool of_memory = step.action.type == cudaGraphNodeTypeMemAlloc ||
                           step.action.type == cudaGraphNodeTypeMemFree;
    if (of_memory) return cudaGraphExecUpdateErrorNotSupported;
    if (!updatable(old.action.work, step.action.work))
      return cudaGraphExecUpdateErrorParametersChanged;
  }
  info.errorNode = nullptr;
  return cudaGraphExecUpdateSuccess;
}

void GraphExec::take_over(const GraphPlan& plan, std::size_t first) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    plan_.steps[first + i].action = plan.steps[i].action;
}

void GraphExec::share_objects(const Graph& graph) {
  objects_.copy(graph.objects);
  for (const Ref<GraphNode>& node : graph.nodes())
    if (node->child) share_objects(*node->child);
}

void GraphExec::update(const Graph& graph, cudaGraphExecUpdateResultInfo& info) {
  const GraphPlan plan(graph);
  info = {};
  info.result = plan.in_cycle != 0 ? cudaGraphExecUpdateErrorTopologyChanged
                                   : compare(plan, 0, plan_.steps.size(), info);
  if (info.result != cudaGraphExecUpdateSuccess) return;
  take_over(plan, 0);
  share_objects(graph);
}

cudaError_t GraphExec::update_child(std::uint64_t node, const Graph& child) {
  const GraphPlan::Step* const end = plan_.find(node);
  if (end == nullptr || end->action.type != cudaGraphNodeTypeGraph) return cudaErrorInvalidValue;
  const std::size_t first = end->begin + 1;
  const std::size_t count = static_cast<std::size_t>(end - plan_.steps.data()) - first;
  const GraphPlan plan(child);
  cudaGraphExecUpdateResultInfo info{};
  if (plan.in_cycle != 0) return cudaErrorInvalidValue;
  if (compare(plan, first, count, info) != cudaGraphExecUpdateSuccess)
    return cudaErrorGraphExecUpdateFailure;
  take_over(plan, first);
  share_objects(child);
  return cudaSuccess;
}

cudaError_t GraphExec::set(std::uint64_t node, const NodeAction& action) {
  GraphPlan::Step* const step = plan_.find(node);
  if (step == nullptr || step->action.type != action.type || !flat(step->action.work) ||
      !flat(action.work) || !updatable(step->action.work, action.work))
    return cudaErrorInvalidValue;
  step->action = action;
  return cudaSuccess;
}

bool* GraphExec::enabled(std::uint64_t node) {
  GraphPlan::Step* const step = plan_.find(node);
  const bool can_be = step != nullptr && (step->action.type == cudaGraphNodeTypeMemcpy ||
                                          step->action.type == cudaGraphNodeTypeMemset);
  return can_be ? &step->enabled : nullptr;
}

}  // namespace penstock::emulation::detail
