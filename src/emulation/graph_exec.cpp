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

Mark GraphExec::launch_step(const GraphPlan::Step& step, Stream& stream, const char* name,
                            std::vector<Mark> after) {
  Task* const task = runtime_.scheduler.task(name, step.work);
  task->unmappings = kCheckAgain;
  if (step.type == cudaGraphNodeTypeWaitEvent) after.push_back(step.event->last());
  for (Mark& mark : after) task->after.push_back(std::move(mark));
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
  const auto lane_of = [&](std::size_t lane) -> Stream& {
    return lane == 0 ? stream : *lanes_[lane - 1];
  };

  Task* const first = scheduler.task(name, GraphWork{});
  first->after.push_back(last_launch_);
  const Mark begin = scheduler.submit(stream, first);

  std::vector<Mark> ends;                       // of each step
  std::vector<Mark> last_of_lane(plan_.lanes);  // unset while a lane has had no step
  for (const GraphPlan::Step& step : plan_.steps) {
    std::vector<Mark> after;
    for (const std::size_t earlier : step.after)
      if (plan_.steps[earlier].lane != step.lane) after.push_back(ends[earlier]);
    if (step.lane != 0 && !last_of_lane[step.lane].stream) after.push_back(begin);
    ends.push_back(launch_step(step, lane_of(step.lane), name, std::move(after)));
    last_of_lane[step.lane] = ends.back();
  }

  Task* const last = scheduler.task(name, GraphWork{});
  for (std::size_t lane = 1; lane < plan_.lanes; ++lane) last->after.push_back(last_of_lane[lane]);
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
