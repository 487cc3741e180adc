// SPDX-License-Identifier: Apache-2.0
#pragma once

// How penstock::trace reaches the emulated runtime. A program that links both has
// penstock_emulated_runtime(), which the trace declares weak; a library that is injected into a
// program is given what it returns, since the runtime is a part of the program. No function of the
// interface may be called from an observer.

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <penstock/emulation.hpp>

namespace penstock::emulation::detail {

struct Interface {
  std::uint32_t version;
  bool (*observe)(const Observer&);
  void (*stop_observing)();
  /// False: there is no such stream, or no runtime.
  bool (*find_stream)(cudaStream_t handle, int* device, std::uint64_t* number);
  /// Blocks until the streams are at the end of what they hold now. At once in a host function,
  /// which would wait for itself.
  void (*await_idle)();
  /// Tells the bytes that are taken on each device.
  void (*device_bytes)(void* context, void (*tell)(void* context, int device, std::size_t bytes));
};

/// Of the struct and of all that it leads to: ApiCall, Operation, Observer.
inline constexpr std::uint32_t kInterfaceVersion = 2;

/// What an injected library exports, beside InitializeInjection, to be given the interface first.
inline constexpr const char* kAttach = "penstock_attach_emulated_runtime";
using Attach = void (*)(const Interface*);

}  // namespace penstock::emulation::detail
