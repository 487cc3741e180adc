// SPDX-License-Identifier: Apache-2.0
#pragma once

// What next() reports when nothing moves. A slow machine also lets the stall time-out pass while
// the pipeline is on its way to the state that a test is about.

#include <penstock/error.hpp>
#include <penstock/prefetcher.hpp>
#include <stdexcept>
#include <string>

#include "eventually.hpp"

namespace penstock::test {

/// The next batch, however long this machine takes beyond the stall time-out.
template <class Batch>
Lease<Batch> next_after_stalls(Prefetcher<Batch>& prefetcher, cudaStream_t stream) {
  for (;;) {
    try {
      return prefetcher.next(stream);
    } catch (const StallError&) {
    }
  }
}

/// Calls next() until it reports a stall of this stage whose text has `says`, for at most 20
/// seconds. Up to `batches` batches may come before. Throws what was wrong in the end.
template <class Batch>
StallError stall(Prefetcher<Batch>& prefetcher, cudaStream_t stream, const std::string& stage,
                 const std::string& says = "", int batches = 0) {
  StallError last("none", 0, 0, {}, "");
  const bool reported = eventually([&] {
    try {
      if (prefetcher.next(stream) && --batches < 0) throw std::logic_error("a batch came");
    } catch (const StallError& error) {
      last = error;
    }
    return last.stage() == stage && std::string(last.what()).find(says) != std::string::npos;
  });
  if (!reported) throw std::logic_error("no such stall, but: " + std::string(last.what()));
  return last;
}

}  // namespace penstock::test
