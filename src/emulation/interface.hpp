// SPDX-License-Identifier: Apache-2.0
#pragma once

// The interface through which penstock::trace uses the emulated runtime. A program that links both
// has penstock_emulated_runtime(), which the trace declares weak. A library that is injected into a
// program gets the result of that function from the program, which contains the runtime. No
// function of the interface may be called from an observer.

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <penstock/emulation.hpp>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

struct Interface {
  std::uint32_t version;
  bool (*observe)(const Observer&);
  void (*stop_observing)();
  /// Finds a stream. Returns false if there is no such stream, or no runtime.
  bool (*find_stream)(cudaStream_t handle, int* device, std::uint64_t* number);
  /// Blocks until the present work of all streams is done. In a host function it returns at once,
  /// since the function would wait for itself.
  void (*await_idle)();
  /// Calls `tell` with the bytes that are in use on each device.
  void (*device_bytes)(void* context, void (*tell)(void* context, int device, std::size_t bytes));
};

/// The version of the struct and of all types that it uses: ApiCall, Operation, Observer.
inline constexpr std::uint32_t kInterfaceVersion = 2;

/// The function that an injected library exports besides InitializeInjection. It is called first,
/// with the interface.
inline constexpr const char* kAttach = "penstock_attach_emulated_runtime";
using Attach = void (*)(const Interface*);

}  // namespace penstock::emulation::detail
