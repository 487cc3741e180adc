// SPDX-License-Identifier: Apache-2.0
#pragma once

// Failures that a test has requested: of calls, which return an error and do nothing, and of
// operations, which fail when they run. Use it with the runtime's lock held.

#include <cstdint>
#include <optional>
#include <penstock/emulation.hpp>
#include <vector>

#include "functions.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// Whether all later calls on the device fail after this error.
bool is_sticky(cudaError_t error);

class Failures {
 public:
  /// `function`: if empty, any function that can fail.
  void add_call(std::optional<Function> function, cudaError_t error, std::uint64_t nth);
  void add_operation(OperationKind kind, cudaError_t error, std::uint64_t nth);
  /// Counts one call or one operation. Returns the error with which it must fail, or cudaSuccess.
  cudaError_t next(Function function);
  cudaError_t next(OperationKind kind);
  /// Removes all failures. Returns false if there were none.
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
