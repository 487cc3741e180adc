// SPDX-License-Identifier: Apache-2.0
#pragma once

// Finds the emulated CUDA runtime of this process: linked together with this library, or in the
// program into which this library was injected.

#include "emulation/interface.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

using EmulatedRuntime = penstock::emulation::detail::Interface;

/// Returns null if the process has none.
const EmulatedRuntime* emulated_runtime();
/// The runtime of the program calls this when it injects this library.
void attach_emulated_runtime(const EmulatedRuntime* runtime);

}  // namespace penstock::trace::detail
