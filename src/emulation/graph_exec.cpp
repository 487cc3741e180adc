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
  const cudaError_t status = claim_memory();
  if (status != cudaSuccess) return status;
  make_lanes(stream);
  Scheduler& scheduler = runtime_.scheduler;

  Task* const first = scheduler.task(name, GraphWork{});
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

cudaGraphExecUpdateResult GraphExec::update(const Graph& graph) {
  GraphPlan plan(*graph.body());
  if (plan.steps.size() != plan_.steps.size()) return cudaGraphExecUpdateErrorTopologyChanged;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.steps[i].type != plan_.steps[i].type) return cudaGraphExecUpdateErrorNodeTypeChanged;
    if (plan.steps[i].after != plan_.steps[i].after) return cudaGraphExecUpdateErrorTopologyChanged;
  }
  if (!plan.memory.empty() || !plan_.memory.empty()) return cudaGraphExecUpdateErrorNotSupported;
  plan_ = std::move(plan);
  body_ = graph.body();
  objects_.share(graph.objects);
  return cudaGraphExecUpdateSuccess;
}

}  // namespace penstock::emulation::detail
