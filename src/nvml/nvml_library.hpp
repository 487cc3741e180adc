// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of the driver's NVML that say how busy the video engines are, loaded at run time.
// They are declared here, so that nothing needs NVML's header.

#include <dlfcn.h>
#include <penstock/version.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

namespace penstock::inline PENSTOCK_ABI::nvml {

using Device = void*;

/// One of NVML's samples.
struct Sample {
  unsigned long long time = 0;  ///< microseconds since 1970
  union {
    double number;
    unsigned integer;
  } value = {0};  ///< in percent; which one it is, a call says for all
};
inline constexpr int kDecoderSamples = 4;  ///< samples of the use of the video engines
inline constexpr int kIntegers = 1;        ///< their values are integers
inline constexpr int kSuccess = 0;

/// NVML's functions. Any thread may call them.
struct Library {
  int (*nvmlInit_v2)() = nullptr;
  int (*nvmlDeviceGetHandleByPciBusId_v2)(const char* bus, Device* device) = nullptr;
  int (*nvmlDeviceGetDecoderUtilization)(Device device, unsigned* percent,
                                         unsigned* period_us) = nullptr;
  int (*nvmlDeviceGetSamples)(Device device, int kind, unsigned long long after_us, int* values,
                              unsigned* count, Sample* samples) = nullptr;
  const char* (*nvmlErrorString)(int status) = nullptr;

  /// Loads and initialises the library at the first call, and keeps it. Returns nullptr on failure;
  /// then `why_not` says why.
  static const Library* load(std::string& why_not) {
    struct Loaded {
      Library library;
      std::string why_not;
      bool is_loaded = library.load_from("libnvidia-ml.so.1", why_not);
    };
    static const Loaded loaded;
    why_not = loaded.why_not;
    return loaded.is_loaded ? &loaded.library : nullptr;
  }

  /// Loads `file` into this table, and initialises it. Returns false on failure; then `why_not`
  /// says why.
  bool load_from(const char* file, std::string& why_not) {
    void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const error =
          dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it by thread
      why_not = error != nullptr ? error : file;
      return false;
    }
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      if (function == nullptr) why_not = std::string(file) + " has no " + name;
      return function != nullptr;
    };
    if (!find(nvmlInit_v2, "nvmlInit_v2") ||
        !find(nvmlDeviceGetHandleByPciBusId_v2, "nvmlDeviceGetHandleByPciBusId_v2") ||
        !find(nvmlDeviceGetDecoderUtilization, "nvmlDeviceGetDecoderUtilization") ||
        !find(nvmlDeviceGetSamples, "nvmlDeviceGetSamples") ||
        !find(nvmlErrorString, "nvmlErrorString"))
      return false;
    const int status = nvmlInit_v2();
    if (status != kSuccess) why_not = std::string("nvmlInit_v2: ") + nvmlErrorString(status);
    return status == kSuccess;
  }
};

}  // namespace penstock::nvml
