// SPDX-License-Identifier: Apache-2.0

// With PENSTOCK_DISABLE_NVTX the ranges of requests are nothing, and no header of NVTX is read.

#include "request_ranges.hpp"

#include <type_traits>

static_assert(std::is_empty_v<penstock::remote::RequestRanges>);
#ifdef NVTX_VERSION
#error NVTX was included
#endif
