// SPDX-License-Identifier: Apache-2.0
#pragma once

// What bounds the rate at which a remote::Client brings bytes, and what to change: the part of a
// pipeline's verdict that is behind its source.
//
//   const penstock::remote::Stats before = client.stats();
//   train_for_a_while();
//   std::cout << penstock::remote::explain(prefetcher.stats().verdict(), before, client.stats());

#include <penstock/remote.hpp>
#include <penstock/verdict.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::remote {

/// What bounds the rate of a client.
enum class Bound {
  demand,      ///< hardly any request runs: the readers wait for something else
  throttling,  ///< the server answers 429 or 503
  processor,   ///< the reactors' threads have no time left
  bandwidth,   ///< requests run at the limit, and more of them brought no more bytes a second
  /// Each request takes its time, and no more run: as many as the readers ask for, or as
  /// Options::max_requests allows.
  latency,
};

/// What bounds the rate of a client, and what to change.
struct Diagnosis {
  Bound bound = Bound::demand;  ///< what bounds it
  std::string sentence;         ///< the same as text, with numbers
};

/// Says what bounded a client between two of its Stats, which should be some seconds apart:
/// throttling, if one answer of a hundred or more was 429 or 503; else the processor, if the
/// reactors were busy for 85 % of the time; else, if for half of the time as many requests ran as
/// the limit allows, the bandwidth, or the latency if the limit is as high as it may be; else the
/// demand, if less than half a request ran on average; else the latency. Any thread.
Diagnosis diagnose(const Stats& before, const Stats& now);

/// The sentence of a verdict and, where the pipeline waits for its source, that of the diagnosis.
std::string explain(const Verdict& verdict, const Stats& before, const Stats& now);

/// The enumerator's name: "latency".
const char* to_string(Bound bound);

}  // namespace penstock::remote
