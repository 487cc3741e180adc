// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where this process has the emulated CUDA runtime: linked beside this library, or in the program
// that this library was injected into.

#include "emulation/interface.hpp"

namespace penstock::trace::detail {

using EmulatedRuntime = penstock::emulation::detail::Interface;

/// Null: the process has none.
const EmulatedRuntime* emulated_runtime();
/// By the runtime of the program that this library is injected into.
void attach_emulated_runtime(const EmulatedRuntime* runtime);

}  // namespace penstock::trace::detail
