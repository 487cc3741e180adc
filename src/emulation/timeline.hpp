// SPDX-License-Identifier: Apache-2.0
#pragma once

// The record of what the streams did (emulation.hpp: timeline). Used under the runtime's lock.

#include <penstock/emulation.hpp>
#include <vector>

#include "task.hpp"

namespace penstock::emulation::detail {

OperationKind kind_of(const Work& work);

class Timeline {
 public:
  bool recording() const { return recording_; }
  void record(bool on) { recording_ = on; }
  void add(const Task& task, const Stream& stream);
  /// By their ends.
  std::vector<Operation> operations() const;

 private:
  bool recording_ = false;
  std::vector<Operation> operations_;
};

}  // namespace penstock::emulation::detail
