// SPDX-License-Identifier: Apache-2.0
#pragma once

// FailurePolicy: what to do if the source fails for a batch, or a per_sample source for a sample: a
// run may have to survive a few unreadable samples.
//
//   penstock::Prefetcher<Images> prefetcher{layout, sampler, source,
//                                           {.on_failure = penstock::FailurePolicy::skip(10)}};
//   ...
//   for (const penstock::Failure& failure : prefetcher.failures()) std::cerr << failure << '\n';
//
// Failures are counted in the order of delivery. So what is skipped or replaced depends only on the
// failures, not on the number of workers or their speed.

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <penstock/detail/inline.hpp>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

/// A batch, or a sample of a per_sample source, that a policy skipped or replaced.
struct Failure {
  std::uint64_t epoch = 0, batch = 0;  ///< of the batch that failed, or that the sample is of
  std::vector<std::uint64_t>
      samples;  ///< numbers of the batch's samples, or of the sample; empty: the sampler failed
  std::string what;       ///< message of the exception
  bool replaced = false;  ///< it was replaced; false: skipped
};

/// Writes one line without a line break, with at most eight of the samples.
std::ostream& operator<<(std::ostream& out, const Failure& failure);

/// What to do with batches, or samples, that fail. Covers exceptions from sources and samplers, and
/// batches that cannot be copied; not CudaError and PoolExhausted from the pipeline itself. Counts
/// and rates are of samples for a per_sample source, otherwise of batches, and over the whole run:
/// a bad sample counts once in each epoch.
class FailurePolicy {
 public:
  /// What is done with a failure.
  enum class Action {
    abort,    ///< next() throws SourceError in place of the batch
    skip,     ///< the batch is left out; per_sample: the sample is left out of its batch
    replace,  ///< the source is called again, with the samples of another batch of the epoch;
              ///< per_sample: with another sample, for the same row
  };

  /// For `at_most`: any number of failures.
  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

  /// The default: next() throws every failure.
  static FailurePolicy abort() { return {Action::abort, 0, 0}; }
  /// Leaves out failed batches, as long as there are at most `at_most` of them, and at most the
  /// fraction `rate` (0 to 1) of the batches so far, rounded up: 0.07 of 100 batches is 7, of 101
  /// it is 8. next() throws every failure beyond. Throws std::invalid_argument for another rate.
  static FailurePolicy skip(std::uint64_t at_most = unlimited, double rate = 1) {
    return {Action::skip, at_most, rate};
  }
  /// Like skip, but fills the failed batch with the samples of another batch of the same epoch,
  /// chosen by its seed, or the failed row with another sample of the data set, chosen by (run
  /// seed, epoch, index). So every rank makes the same number of steps. If three replacements fail
  /// too, next() throws the failure; a batch for which the source says that there is no more data
  /// is one that fails. In an epoch that a Sampler continues, only the remaining batches are drawn.
  /// In a Ragged field, the space of a failed attempt is not released: its Capacity has to hold
  /// those values too.
  static FailurePolicy replace(std::uint64_t at_most = unlimited, double rate = 1) {
    return {Action::replace, at_most, rate};
  }

  FailurePolicy() = default;

  /// What is done with a failure within the limits.
  Action action() const noexcept { return action_; }

  /// Whether failure number `failures` (from 1) is within the limits after `batches` batches,
  /// itself included.
  bool tolerates(std::uint64_t failures, std::uint64_t batches) const noexcept;

  /// The limits, for messages, such as "at most 10".
  std::string limits() const;

 private:
  FailurePolicy(Action action, std::uint64_t at_most, double rate);

  Action action_ = Action::abort;
  std::uint64_t at_most_ = 0;
  double rate_ = 0;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/pipeline/failure.hpp>
#endif
