// SPDX-License-Identifier: Apache-2.0
#include "task.hpp"

#include <string>
#include <utility>

#include "device.hpp"
#include "event.hpp"
#include "stream.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

TaskStore::~TaskStore() {
  while (free_ != nullptr) delete std::exchange(free_, free_->next);
}

Task* TaskStore::take() {
  if (free_ == nullptr) return new Task;
  Task* const task = std::exchange(free_, free_->next);
  task->next = nullptr;
  return task;
}

void TaskStore::give_back(Task* task) {
  task->work = GraphWork{};
  task->event = {};
  task->after.clear();
  task->reached = 0;
  task->edges.reset();
  task->staging.reset();
  task->kept_alive = {};
  task->scheduled = false;
  task->counts = true;
  task->looks_since = task->submitted = task->not_before = task->begin = task->end = Time{};
  task->next = std::exchange(free_, task);
}

std::string describe(const Stream& stream) {
  const std::string name =
      stream.legacy() ? "the legacy default stream" : "stream " + std::to_string(stream.number);
  return name + " of device " + std::to_string(stream.device.index);
}

Stream::~Stream() {
  while (head != nullptr) delete std::exchange(head, head->next);
}

}  // namespace penstock::emulation::detail
