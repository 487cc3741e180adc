// SPDX-License-Identifier: Apache-2.0
#include "emulated_runtime.hpp"

#include <atomic>

// The program defines this function if it also links penstock::emulated.
extern "C" __attribute__((weak)) const penstock::emulation::detail::Interface*
penstock_emulated_runtime();

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {
std::atomic<const EmulatedRuntime*> attached{nullptr};
}

const EmulatedRuntime* emulated_runtime() {
  if (const EmulatedRuntime* const runtime = attached.load()) return runtime;
  return penstock_emulated_runtime != nullptr ? penstock_emulated_runtime() : nullptr;
}

void attach_emulated_runtime(const EmulatedRuntime* runtime) {
  attached = runtime;
}

}  // namespace penstock::trace::detail
