// SPDX-License-Identifier: Apache-2.0
#pragma once

// Verdict: what bounds a pipeline, and what to change, with numbers. Stats::verdict() finds it; the
// rules and their thresholds are in docs/stats.md.
//
//   const penstock::Verdict verdict = prefetcher.stats().verdict();
//   if (verdict.kind == penstock::VerdictKind::more_workers) use(verdict.enough_workers);
//   std::cout << verdict.sentence << '\n';

#include <chrono>
#include <cstddef>
#include <penstock/detail/inline.hpp>
#include <string>

namespace penstock {

/// The stage that bounds the rate of a pipeline: the one that works for most of its time.
enum class Bottleneck {
  source,    ///< the workers: they are busy, everybody else waits for batches
  copy,      ///< the way to the device: batches wait for it, the consumer waits for its end
  consumer,  ///< the user's loop or kernels: the pipeline is full and waits
  balanced,  ///< no stage waits for another to speak of; or each waits for over half of its time
};

/// What is to be changed.
enum class VerdictKind {
  too_early,      ///< fewer than 8 batches came: there is nothing to go by
  more_workers,   ///< the source cannot keep up
  deeper_ring,    ///< no stage is at its limit, and the consumer waits: they wait by turns
  smaller_bytes,  ///< the copy cannot keep up: fewer bytes, such as uint8 in place of float
  bus_bound,      ///< the copy cannot keep up, by more than 4 times: that is what uint8 saves
  compute_bound,  ///< nothing: the consumer never waits for input
  balanced,       ///< nothing: the consumer hardly waits, and another stage is at its limit too
};

struct Verdict {
  Bottleneck stage = Bottleneck::balanced;
  VerdictKind kind = VerdictKind::too_early;
  std::string sentence;  ///< the same, for people

  /// For each batch: between two batches; and what each stage would take if it never waited. Of the
  /// consumer and the copy known only with device times; else 0.
  std::chrono::nanoseconds period{0}, source{0}, copy{0}, consumer{0};
  double starved = 0;  ///< part of its time that the consumer waits for input, 0 ... 1

  // What would be enough; 0: nothing to change, or not known.
  int enough_workers = 0;
  std::size_t enough_host_depth = 0, enough_device_depth = 0;
  double times_smaller = 0;  ///< that a batch has to be to cross the bus in time
};

const char* to_string(Bottleneck bottleneck);
const char* to_string(VerdictKind kind);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/measure/verdict.hpp>
#endif
