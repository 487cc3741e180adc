// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime_api.h>

#include <array>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <penstock/video/engine_use.hpp>

#include "nvml_library.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

std::optional<double> engine_use(std::string& why_not) {
  const int device = current_device();
  const NvmlLibrary* const nvml = NvmlLibrary::load(why_not);
  if (nvml == nullptr) return std::nullopt;
  std::array<char, 32> bus{};
  penstock::detail::check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device),
                          "cudaDeviceGetPCIBusId");
  const auto failed = [&](int status, const char* call) {
    if (status != 0) why_not = std::string(call) + ": " + nvml->nvmlErrorString(status);
    return status != 0;
  };
  NvmlLibrary::Device handle = nullptr;
  unsigned percent = 0, period_us = 0;
  if (failed(nvml->nvmlDeviceGetHandleByPciBusId_v2(bus.data(), &handle),
             "nvmlDeviceGetHandleByPciBusId_v2") ||
      failed(nvml->nvmlDeviceGetDecoderUtilization(handle, &percent, &period_us),
             "nvmlDeviceGetDecoderUtilization"))
    return std::nullopt;
  return percent / 100.0;
}

}  // namespace penstock::video
