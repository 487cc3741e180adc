// SPDX-License-Identifier: Apache-2.0
#include "timeline.hpp"

#include <algorithm>

#include "device.hpp"
#include "stream.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

struct KindOf {
  OperationKind operator()(const CopyWork&) const { return OperationKind::copy; }
  OperationKind operator()(const FillWork&) const { return OperationKind::fill; }
  OperationKind operator()(const HostWork&) const { return OperationKind::host_function; }
  OperationKind operator()(const RecordWork&) const { return OperationKind::event_record; }
  OperationKind operator()(const WaitWork&) const { return OperationKind::event_wait; }
  OperationKind operator()(const AllocateWork&) const { return OperationKind::allocate; }
  OperationKind operator()(const FreeWork&) const { return OperationKind::free; }
  OperationKind operator()(const GraphWork&) const { return OperationKind::graph; }
  OperationKind operator()(const JoinWork&) const { return OperationKind::graph; }
};

}  // namespace

OperationKind kind_of(const Work& work) {
  return std::visit(KindOf{}, work);
}

Operation describe(const Task& task, const Stream& stream) {
  Operation operation;
  operation.kind = kind_of(task.work);
  operation.name = task.name;
  operation.device = stream.device.index;
  operation.stream = stream.number;
  operation.correlation = task.correlation;
  operation.call = task.call;
  // The task ended before recording began, so its time is unknown; the present time replaces it.
  operation.end = task.end == Time{} ? Clock::now() : task.end;
  operation.begin = task.begin == Time{} ? operation.end : task.begin;
  operation.submitted = task.submitted == Time{} ? operation.begin : task.submitted;
  if (const auto* copy = std::get_if<CopyWork>(&task.work)) {
    operation.bytes = copy->bytes();
    operation.copy = copy->direction;
    operation.pageable = copy->pageable;
    operation.synchronous = copy->synchronous;
  } else if (const auto* fill = std::get_if<FillWork>(&task.work)) {
    operation.bytes = fill->bytes();
    operation.synchronous = fill->synchronous;
  } else if (const auto* host = std::get_if<HostWork>(&task.work)) {
    operation.function = host->function != nullptr ? reinterpret_cast<void (*)()>(host->function)
                                                   : reinterpret_cast<void (*)()>(host->callback);
  } else if (const auto* allocate = std::get_if<AllocateWork>(&task.work)) {
    operation.bytes = allocate->bytes;
  } else if (const auto* free = std::get_if<FreeWork>(&task.work)) {
    operation.bytes = free->bytes;
  }
  return operation;
}

std::vector<Operation> Timeline::operations() const {
  std::vector<Operation> sorted = operations_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Operation& a, const Operation& b) { return a.end < b.end; });
  return sorted;
}

}  // namespace penstock::emulation::detail
