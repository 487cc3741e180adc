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

#ifdef PENSTOCK_CHECKS
namespace penstock::detail {

/// A source that is compiled with PENSTOCK_CHECKS turns the checks on for its whole program: the
/// library looks whether any object file has this function (detail/memory/checks.hpp).
[[gnu::used]] inline bool checks_are_compiled_in() noexcept {
  return true;
}

}  // namespace penstock::detail
#endif
