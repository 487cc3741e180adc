// SPDX-License-Identifier: Apache-2.0
#pragma once

// PENSTOCK_INLINE marks definitions that are not templates. They are compiled once, in the library
// (src/core), or, with PENSTOCK_HEADER_ONLY, in each source file that includes a header of
// penstock. A public header has the declarations; detail/<folder>/<the same name> has the
// definitions.

#include <penstock/version.hpp>

#ifdef PENSTOCK_HEADER_ONLY
#define PENSTOCK_INLINE inline
#else
#define PENSTOCK_INLINE
#endif

// PENSTOCK_HOST_DEVICE marks functions that kernels call. PENSTOCK_EXEC_CHECK_OFF precedes a
// template that calls functions which, without --expt-relaxed-constexpr, only the host may call.
#ifdef __CUDACC__
#define PENSTOCK_HOST_DEVICE __host__ __device__
#define PENSTOCK_EXEC_CHECK_OFF _Pragma("nv_exec_check_disable")
#else
#define PENSTOCK_HOST_DEVICE
#define PENSTOCK_EXEC_CHECK_OFF
#endif

#ifdef PENSTOCK_CHECKS
namespace penstock::inline PENSTOCK_ABI::detail {

/// A source file that is compiled with PENSTOCK_CHECKS turns the checks on for its whole program:
/// the library checks whether any object file has this function (detail/memory/checks.hpp).
[[gnu::used]] inline bool checks_are_compiled_in() noexcept {
  return true;
}

}  // namespace penstock::detail
#endif
