// SPDX-License-Identifier: Apache-2.0

// Replaces cupti_backend.cpp if there are no CUPTI headers.

#include "backend.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

std::unique_ptr<Backend> make_cupti_backend(EventSink&, const SessionOptions&, ProfilerSwitch,
                                            void*) {
  throw Unavailable(
      "this penstock::trace was built without CUPTI, so it records over the emulated CUDA runtime "
      "alone: build it where there is a CUDA toolkit");
}

}  // namespace penstock::trace::detail
