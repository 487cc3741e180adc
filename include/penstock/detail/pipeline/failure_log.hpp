// SPDX-License-Identifier: Apache-2.0
#pragma once

// FailureLog: what a FailurePolicy has dealt with so far, counted in the order of delivery by the
// one thread that takes batches; any thread may read it.

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <penstock/error.hpp>
#include <penstock/failure.hpp>
#include <string>
#include <utility>
#include <vector>

namespace penstock::detail {

/// In place of a batch, or beside the one that replaces it.
struct Failed {
  std::exception_ptr cause;
  std::unique_ptr<Failure> failure;  ///< nullptr: not the source's, so no policy covers it
  bool decided = false;              ///< it will be thrown

  /// Throws the cause, or a SourceError that nests it.
  [[noreturn]] void raise(const FailurePolicy& policy) const {
    if (!failure) std::rethrow_exception(cause);
    std::string why = failure->what;
    if (policy.action() != FailurePolicy::Action::abort)
      why += "; it is one too many for the failure policy, or could not be replaced: " +
             policy.limits();
    try {
      std::rethrow_exception(cause);
    } catch (...) {  // SourceError nests what is being handled.
      throw SourceError(failure->epoch, failure->batch, why);
    }
  }
};

class FailureLog {
 public:
  static constexpr std::size_t most_kept = 256;

  explicit FailureLog(FailurePolicy policy) : policy_(policy) { kept_.reserve(most_kept); }

  const FailurePolicy& policy() const noexcept { return policy_; }

  void count_batch() noexcept { ++batches_; }

  /// True: `failed`, the one in place of the next batch, is dealt with, and on record. False: it is
  /// to be thrown. Asked once for each failure.
  bool tolerates(Failed& failed, bool replaced) noexcept {
    const bool covered = replaced == (policy_.action() == FailurePolicy::Action::replace);
    failed.decided = true;
    if (!covered || !policy_.tolerates(skipped() + this->replaced() + 1, batches_ + 1))
      return false;
    failed.failure->replaced = replaced;
    (replaced ? replaced_ : skipped_).fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (kept_.size() < most_kept) kept_.push_back(std::move(*failed.failure));
    return true;
  }

  /// The first ones.
  std::vector<Failure> kept() const {
    const std::lock_guard lock(mutex_);
    return kept_;
  }
  std::uint64_t skipped() const noexcept { return skipped_.load(std::memory_order_relaxed); }
  std::uint64_t replaced() const noexcept { return replaced_.load(std::memory_order_relaxed); }

 private:
  const FailurePolicy policy_;
  std::uint64_t batches_ = 0;  // taken so far, skipped ones included
  std::atomic<std::uint64_t> skipped_{0}, replaced_{0};
  mutable std::mutex mutex_;
  std::vector<Failure> kept_;
};

}  // namespace penstock::detail
