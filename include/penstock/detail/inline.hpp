// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the definitions of what is no template are compiled: once, in the library that a program
// links (src/core), or, with PENSTOCK_HEADER_ONLY, in each source that includes a header of
// penstock. A public header declares; detail/<room>/<the same name> defines.

#ifdef PENSTOCK_HEADER_ONLY
#define PENSTOCK_INLINE inline
#else
#define PENSTOCK_INLINE
#endif

// For what kernels call. EXEC_CHECK_OFF goes in front of a template that calls what only the host
// may call without --expt-relaxed-constexpr.
#ifdef __CUDACC__
#define PENSTOCK_HOST_DEVICE __host__ __device__
#define PENSTOCK_EXEC_CHECK_OFF _Pragma("nv_exec_check_disable")
#else
#define PENSTOCK_HOST_DEVICE
#define PENSTOCK_EXEC_CHECK_OFF
#endif

#ifdef PENSTOCK_CHECKS
namespace penstock::detail {

/// A source that is compiled with PENSTOCK_CHECKS turns the checks on for its whole program: the
/// library looks whether any object file has this function (detail/memory/checks.hpp).
[[gnu::used]] inline bool checks_are_compiled_in() noexcept {
  return true;
}

}  // namespace penstock::detail
#endif
