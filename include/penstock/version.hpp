// SPDX-License-Identifier: Apache-2.0
#pragma once

// The version of penstock, for #if. CMake reads it here.
//
// All names of penstock are in an inline namespace of its ABI, which programs need not write:
// penstock::Sampler is penstock::v1_0::Sampler for the linker. So two libraries of one process may
// contain two versions of penstock, or one compiled with NVTX and one without, and neither calls
// functions of the other. An object of one version is another type than that of another one, so
// their types in an interface must be of one version: the linker reports the others. A program
// declares no name of penstock itself, since it would have to know the inline namespace.
// docs/versions.md says which versions have the same ABI.

#include <penstock/detail/language.hpp>

#define PENSTOCK_VERSION_MAJOR 1
#define PENSTOCK_VERSION_MINOR 0
#define PENSTOCK_VERSION_PATCH 0

/// 10000 x major + 100 x minor + patch, as in `#if PENSTOCK_VERSION >= 10000`, for 1.0.0.
#define PENSTOCK_VERSION \
  (PENSTOCK_VERSION_MAJOR * 10000 + PENSTOCK_VERSION_MINOR * 100 + PENSTOCK_VERSION_PATCH)

/// The name of the inline namespace: major and minor version, and the setting that changes what
/// inline functions do. PENSTOCK_CHECKS is none: one source file turns the checks on for its whole
/// program.
#if defined(PENSTOCK_DISABLE_NVTX) || defined(NVTX_DISABLE)
#define PENSTOCK_ABI v1_0_without_nvtx
#ifdef PENSTOCK_COMPILED_WITH_NVTX
#error \
    "penstock's library is compiled with NVTX: link penstock::header_only alone, or build penstock with PENSTOCK_WITH_NVTX=OFF"
#endif
#else
#define PENSTOCK_ABI v1_0
#endif
