// SPDX-License-Identifier: Apache-2.0
#pragma once

// Records the operations of the streams (emulation.hpp: timeline). Use it with the runtime's lock
// held.

#include <penstock/emulation.hpp>
#include <vector>

#include "task.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

OperationKind kind_of(const Work& work);
/// Returns the record of a task that has ended.
Operation describe(const Task& task, const Stream& stream);

class Timeline {
 public:
  bool recording() const { return recording_; }
  void record(bool on) { recording_ = on; }
  void add(const Operation& operation) { operations_.push_back(operation); }
  /// Returns the operations ordered by their ends.
  std::vector<Operation> operations() const;

 private:
  bool recording_ = false;
  std::vector<Operation> operations_;
};

}  // namespace penstock::emulation::detail
