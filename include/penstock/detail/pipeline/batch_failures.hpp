// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchFailures: what has failed in a batch, and why.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <penstock/error.hpp>
#include <penstock/failure.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// A failure of a batch or of a row, which may have been replaced.
struct BatchFailure {
  std::exception_ptr cause;
  std::unique_ptr<Failure> failure;  ///< nullptr: not of the source, so that no policy covers it
  std::int64_t row = 0;              ///< of a per_sample source
  std::string why_not_replaced{};    ///< where the policy is to replace

  /// Returns the cause, or a SourceError that nests it.
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

/// One thread at a time may call the members. It has the size of a pointer.
class BatchFailures {
 public:
  bool empty() const noexcept { return all_ == nullptr; }
  std::span<BatchFailure> all() const noexcept {
    return empty() ? std::span<BatchFailure>() : *all_;
  }

  void add(BatchFailure failed) {
    if (empty()) all_ = std::make_unique<std::vector<BatchFailure>>();
    all_->push_back(std::move(failed));
  }
  /// Those of one row stay in their order.
  void sort_by_row() {
    const std::span<BatchFailure> rows = all();
    std::stable_sort(rows.begin(), rows.end(),
                     [](const BatchFailure& a, const BatchFailure& b) { return a.row < b.row; });
  }
  /// Forgets all but `kept`, which is one of them.
  void keep_only(BatchFailure& kept) noexcept {
    std::swap(kept, all_->front());
    all_->erase(all_->begin() + 1, all_->end());
  }
  void clear() noexcept { all_.reset(); }

 private:
  std::unique_ptr<std::vector<BatchFailure>> all_;  // nullptr: none
};

}  // namespace penstock::detail
