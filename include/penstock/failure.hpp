// SPDX-License-Identifier: Apache-2.0
#pragma once

// FailurePolicy: what becomes of a batch whose source fails, or of a sample whose per_sample source
// fails, in a run that should survive a few unreadable samples.
//
//   penstock::Prefetcher<Images> prefetcher{layout, sampler, source,
//                                           {.on_failure = penstock::FailurePolicy::skip(10)}};
//   ...
//   for (const penstock::Failure& failure : prefetcher.failures()) std::cerr << failure << '\n';
//
// What is skipped or replaced depends on the failures alone, not on the number of workers
// or their speed: failures are counted in the order of delivery.

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <penstock/detail/inline.hpp>
#include <string>
#include <vector>

namespace penstock {

/// One batch, or one sample of a per_sample source, that a policy dealt with.
struct Failure {
  std::uint64_t epoch = 0, batch = 0;
  std::vector<std::uint64_t> samples;  ///< that the source was asked for; empty: the sampler failed
  std::string what;                    ///< of the source's exception
  bool replaced = false;               ///< false: skipped
};

std::ostream& operator<<(std::ostream& out, const Failure& failure);

/// Covers what sources and samplers throw, and batches that cannot be copied; never CudaError and
/// PoolExhausted of the pipeline's own. With a per_sample source all counts and rates are of
/// samples, else of batches.
class FailurePolicy {
 public:
  enum class Action {
    abort,    ///< next() throws SourceError in the batch's place
    skip,     ///< the batch is left out; per_sample: the batch is shorter by the sample
    replace,  ///< the source is asked again, for the samples of other batches of the epoch;
              ///< per_sample: for another sample, for the same row
  };

  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

  /// The default: every failure is thrown.
  static FailurePolicy abort() { return {Action::abort, 0, 0}; }
  /// Leaves failed batches out, while there are no more than `at_most`, and no more than the part
  /// `rate` (0 to 1, rounded up) of the batches so far. The failure beyond is thrown, as is each
  /// one after it. Throws std::invalid_argument.
  static FailurePolicy skip(std::uint64_t at_most = unlimited, double rate = 1) {
    return {Action::skip, at_most, rate};
  }
  /// As skip, but fills the failed batch with the samples of another batch of the same epoch, which
  /// its seed picks, or the failed row with another sample of the data set, which (run seed, epoch,
  /// index) pick: every rank takes the same number of steps. After three that fail too, the failure
  /// is thrown.
  static FailurePolicy replace(std::uint64_t at_most = unlimited, double rate = 1) {
    return {Action::replace, at_most, rate};
  }

  FailurePolicy() = default;

  Action action() const noexcept { return action_; }

  /// May failure number `failures` (from 1) be tolerated after `batches` batches, itself included?
  bool tolerates(std::uint64_t failures, std::uint64_t batches) const noexcept;

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
