// SPDX-License-Identifier: Apache-2.0
#pragma once

// FailureNode: what has failed in a batch, and why.

#include <cstdint>
#include <exception>
#include <memory>
#include <penstock/error.hpp>
#include <penstock/failure.hpp>
#include <string>

namespace penstock::detail {

/// A failure of a batch or of a row, which may have been replaced.
struct FailureNode {
  std::exception_ptr cause;
  std::unique_ptr<Failure> failure;  ///< nullptr: not of the source, so that no policy covers it
  std::int64_t row = 0;              ///< of a per_sample source
  std::string why_not_replaced{};    ///< where the policy is to replace
  FailureNode* next = nullptr;       ///< of a FailureStack

  /// The cause, or a SourceError that nests it.
  std::exception_ptr as_error(const FailurePolicy& policy) const {
    if (!failure) return cause;
    std::string why = failure->what;
    if (policy.action() == FailurePolicy::Action::replace && !failure->replaced) {
      if (!why_not_replaced.empty()) why += "; it could not be replaced: " + why_not_replaced;
    } else if (policy.action() != FailurePolicy::Action::abort) {
      why += "; it is one too many for the failure policy: " + policy.limits();
    }
    try {
      std::rethrow_exception(cause);
    } catch (...) {  // SourceError nests what is being handled.
      return std::make_exception_ptr(SourceError(failure->epoch, failure->batch, why));
    }
  }
};

}  // namespace penstock::detail
