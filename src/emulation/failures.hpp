// SPDX-License-Identifier: Apache-2.0
#pragma once

// Failures that a test has asked for: of calls, which return an error and do nothing, and of
// operations, which fail when they run. Used under the runtime's lock.

#include <cstdint>
#include <optional>
#include <penstock/emulation.hpp>
#include <vector>

#include "functions.hpp"

namespace penstock::emulation::detail {

/// After one of these nothing works on the device any more.
bool is_sticky(cudaError_t error);

class Failures {
 public:
  /// `function` empty: any that can fail.
  void add_call(std::optional<Function> function, cudaError_t error, std::uint64_t nth);
  void add_operation(OperationKind kind, cudaError_t error, std::uint64_t nth);
  /// Counts one call or one operation: the error that it fails with, or cudaSuccess.
  cudaError_t next(Function function);
  cudaError_t next(OperationKind kind);
  /// False when there were none.
  bool clear();

 private:
  template <class What>
  struct Planned {
    std::optional<What> what;  // empty: any
    cudaError_t error;
    std::uint64_t left;
  };
  template <class What>
  static cudaError_t count(std::vector<Planned<What>>& planned, What what);

  std::vector<Planned<Function>> calls_;
  std::vector<Planned<OperationKind>> operations_;
};

}  // namespace penstock::emulation::detail
