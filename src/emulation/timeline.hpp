// SPDX-License-Identifier: Apache-2.0
#pragma once

// The record of what the streams did (emulation.hpp: timeline). Used under the runtime's lock.

#include <penstock/emulation.hpp>
#include <vector>

#include "task.hpp"

namespace penstock::emulation::detail {

OperationKind kind_of(const Work& work);
/// A task that has ended.
Operation describe(const Task& task, const Stream& stream);

class Timeline {
 public:
  bool recording() const { return recording_; }
  void record(bool on) { recording_ = on; }
  void add(const Operation& operation) { operations_.push_back(operation); }
  /// By their ends.
  std::vector<Operation> operations() const;

 private:
  bool recording_ = false;
  std::vector<Operation> operations_;
};

}  // namespace penstock::emulation::detail
