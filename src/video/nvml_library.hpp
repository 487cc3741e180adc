// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of the driver's NVML that this library calls, loaded at run time. They are declared
// here, so that nothing needs its header.

#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {

struct NvmlLibrary {
  using Device = void*;
  int (*nvmlInit_v2)() = nullptr;
  int (*nvmlDeviceGetHandleByPciBusId_v2)(const char* bus, Device* device) = nullptr;
  int (*nvmlDeviceGetDecoderUtilization)(Device device, unsigned* percent,
                                         unsigned* period_us) = nullptr;
  const char* (*nvmlErrorString)(int status) = nullptr;

  /// Loads and initialises the library at the first call, and keeps it. Returns nullptr on failure;
  /// then `why_not` says why.
  static const NvmlLibrary* load(std::string& why_not);
  /// Loads `file` into this table, and initialises it. Returns false on failure; then `why_not`
  /// says why.
  bool load_from(const char* file, std::string& why_not);
};

}  // namespace penstock::video
