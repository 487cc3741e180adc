// SPDX-License-Identifier: Apache-2.0
#pragma once

// FailurePolicy: what becomes of a batch whose source fails, in a run that should survive a few
// unreadable samples.
//
//   penstock::Prefetcher<Images> prefetcher{layout, sampler, source,
//                                           {.on_failure = penstock::FailurePolicy::skip(10)}};
//   ...
//   for (const penstock::Failure& failure : prefetcher.failures()) std::cerr << failure << '\n';
//
// Which batches are skipped or replaced depends on the failures alone, not on the number of workers
// or their speed: failures are counted in the order of delivery.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

/// One batch that a policy dealt with.
struct Failure {
  std::uint64_t epoch = 0, batch = 0;
  std::vector<std::uint64_t> samples;  ///< that the source was asked for; empty: the sampler failed
  std::string what;                    ///< of the source's exception
  bool replaced = false;               ///< false: skipped
};

inline std::ostream& operator<<(std::ostream& out, const Failure& failure) {
  out << (failure.replaced ? "replaced" : "skipped") << " epoch " << failure.epoch << ", batch "
      << failure.batch << ": " << failure.what << " (samples";
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < std::min(kShown, failure.samples.size()); ++i)
    out << ' ' << failure.samples[i];
  if (failure.samples.size() > kShown) out << " ... of " << failure.samples.size();
  return out << ')';
}

/// Covers what sources and samplers throw, and batches that cannot be copied; never CudaError and
/// PoolExhausted of the pipeline's own.
class FailurePolicy {
 public:
  enum class Action {
    abort,    ///< next() throws SourceError in the batch's place
    skip,     ///< the batch is left out
    replace,  ///< the source is asked again, for the samples of other batches of the epoch
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
  /// its seed picks: every rank takes the same number of steps. After three that fail too, the
  /// failure is thrown.
  static FailurePolicy replace(std::uint64_t at_most = unlimited, double rate = 1) {
    return {Action::replace, at_most, rate};
  }

  FailurePolicy() = default;

  Action action() const noexcept { return action_; }

  /// May failure number `failures` (from 1) be tolerated after `batches` batches, itself included?
  bool tolerates(std::uint64_t failures, std::uint64_t batches) const noexcept {
    return action_ != Action::abort && failures <= at_most_ &&
           static_cast<double>(failures) <= std::ceil(rate_ * static_cast<double>(batches));
  }

  std::string limits() const {
    std::string text = at_most_ == unlimited ? "any number" : "at most " + std::to_string(at_most_);
    if (rate_ < 1) text += ", and a part of " + std::to_string(rate_);
    return text;
  }

 private:
  FailurePolicy(Action action, std::uint64_t at_most, double rate)
      : action_(action), at_most_(at_most), rate_(rate) {
    if (!(rate >= 0 && rate <= 1))
      throw std::invalid_argument("FailurePolicy: rate is " + std::to_string(rate) +
                                  ", must be 0 to 1");
  }

  Action action_ = Action::abort;
  std::uint64_t at_most_ = 0;
  double rate_ = 0;
};

}  // namespace penstock
