// SPDX-License-Identifier: Apache-2.0

#include "nvml_library.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace penstock::inline PENSTOCK_ABI::video {

const NvmlLibrary* NvmlLibrary::load(std::string& why_not) {
  struct Loaded {
    NvmlLibrary library;
    std::string why_not;
    bool is_loaded = library.load_from("libnvidia-ml.so.1", why_not);
  };
  static const Loaded loaded;
  why_not = loaded.why_not;
  return loaded.is_loaded ? &loaded.library : nullptr;
}

bool NvmlLibrary::load_from(const char* file, std::string& why_not) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it by thread
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
      !find(nvmlErrorString, "nvmlErrorString"))
    return false;
  const int status = nvmlInit_v2();
  if (status != 0) why_not = std::string("nvmlInit_v2: ") + nvmlErrorString(status);
  return status == 0;
}

}  // namespace penstock::video
