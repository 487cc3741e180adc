// SPDX-License-Identifier: Apache-2.0
#pragma once

// FailureLog: applies a FailurePolicy to batches, in the order of delivery, and keeps the failures
// that it has handled. Any thread may read it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <penstock/detail/pipeline/batch_record.hpp>
#include <penstock/failure.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

class FailureLog {
 public:
  static constexpr std::size_t most_kept = 256;

  /// With `by_sample` the policy counts samples, else batches. `ordered`: batches come in order.
  FailureLog(FailurePolicy policy, bool by_sample, bool ordered)
      : policy_(policy), by_sample_(by_sample), ordered_(ordered) {
    kept_.reserve(most_kept);
  }

  const FailurePolicy& policy() const noexcept { return policy_; }

  bool counts_samples() const noexcept { return by_sample_; }

  /// Decides whether the consumer gets a filled, failed or ended batch, whether it is skipped, or
  /// whether an error is thrown in its place. Where batches come unordered, those that other
  /// workers had begun may follow the end of the data. So that end is passed over, like a batch
  /// that is skipped. Call it once for each batch, in the order of delivery, on one thread at a
  /// time.
  void admit(BatchRecord& record) noexcept {
    if (record.is(Stage::ended)) {
      if (!ordered_) record.set(Stage::passed);
      return;
    }
    std::uint64_t items = by_sample_ ? std::max<std::uint64_t>(1, record.ticket.samples.size()) : 1;
    if (record.is(Stage::failed))
      record.set(Stage::passed);
    else
      for (const BatchFailure& failed : record.failures.all())
        items += failed.failure->replaced ? 0U : 1U;  // a row that was left out
    for (BatchFailure& failed : record.failures.all()) {
      if (tolerates(failed, items)) continue;
      record.failures.keep_only(failed);
      record.set(Stage::thrown);
      break;
    }
    if (!record.failures.empty() && !record.is(Stage::thrown)) record.failures.clear();
    counted_ += items;
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
  /// Applies the policy to `failed`, which is among the next `items` batches (samples). True: it is
  /// tolerated and recorded. False: it has to be thrown.
  bool tolerates(BatchFailure& failed, std::uint64_t items) noexcept {
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

  const FailurePolicy policy_;
  const bool by_sample_, ordered_;
  std::uint64_t counted_ = 0;  // batches (samples) so far, skipped ones included
  std::atomic<std::uint64_t> skipped_{0}, replaced_{0};
  mutable std::mutex mutex_;
  std::vector<Failure> kept_;
  std::string last_;
};

}  // namespace penstock::detail
