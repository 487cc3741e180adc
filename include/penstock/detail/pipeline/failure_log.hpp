// SPDX-License-Identifier: Apache-2.0
#pragma once

// FailureLog: the failures that a FailurePolicy has handled. The thread that takes batches counts
// them, in the order of delivery. Any thread may read it.

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <penstock/error.hpp>
#include <penstock/failure.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

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

class FailureLog {
 public:
  static constexpr std::size_t most_kept = 256;

  explicit FailureLog(FailurePolicy policy) : policy_(policy) { kept_.reserve(most_kept); }

  const FailurePolicy& policy() const noexcept { return policy_; }

  /// Counts batches (samples) that were taken, or handled.
  void count(std::uint64_t items) noexcept { counted_ += items; }

  /// Applies the policy to `failed`, one of the next `items` batches (samples). True: it is
  /// tolerated and recorded. False: it has to be thrown. Call it once for each failure.
  bool tolerates(FailureNode& failed, std::uint64_t items) noexcept {
    if (!failed.failure) return false;
    const bool replaced = failed.failure->replaced;
    const bool covered = replaced == (policy_.action() == FailurePolicy::Action::replace);
    if (!covered || !policy_.tolerates(skipped() + this->replaced() + 1, counted_ + items))
      return false;
    (replaced ? replaced_ : skipped_).fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    try {
      std::ostringstream line;
      line << *failed.failure;
      last_ = std::move(line).str();
    } catch (...) {  // For want of memory. It only helps a message.
    }
    if (kept_.size() < most_kept) kept_.push_back(std::move(*failed.failure));
    return true;
  }

  /// The first ones.
  std::vector<Failure> kept() const {
    const std::lock_guard lock(mutex_);
    return kept_;
  }
  /// The last one, in words.
  std::string last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  std::uint64_t skipped() const noexcept { return skipped_.load(std::memory_order_relaxed); }
  std::uint64_t replaced() const noexcept { return replaced_.load(std::memory_order_relaxed); }

 private:
  const FailurePolicy policy_;
  std::uint64_t counted_ = 0;  // batches (samples) so far, skipped ones included
  std::atomic<std::uint64_t> skipped_{0}, replaced_{0};
  mutable std::mutex mutex_;
  std::vector<Failure> kept_;
  std::string last_;
};

}  // namespace penstock::detail
