// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a call of the CUDA runtime or driver API costs a hot path, by its name. The same classes as
// the emulated runtime's counters (penstock/emulation.hpp).

#include <penstock/version.hpp>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::trace {

/// What a call does that costs a hot path.
struct CallTraits {
  bool allocating = false;  ///< allocates or frees memory
  bool creating = false;    ///< creates or destroys a stream, an event, a graph, a pool
  bool blocking = false;    ///< may block the host until the device caught up
  bool synchronising =
      false;               ///< does nothing else: cudaStreamSynchronize, cudaEventSynchronize ...
  bool launching = false;  ///< puts work on a stream
};

/// `name`: "cudaMalloc", "cuMemAlloc", with or without a suffix (plain_name). Unknown: none.
CallTraits traits_of(std::string_view name);

/// Without the suffixes of versions and of per-thread default streams: "cudaMemcpyAsync" of
/// "cudaMemcpyAsync_ptsz_v7000". A part of `name`.
std::string_view plain_name(std::string_view name);

}  // namespace penstock::trace
