// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime_api.h>

#include <array>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <penstock/video/engine_use.hpp>

#include "nvml/nvml_library.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

std::optional<double> engine_use(std::string& why_not) {
  const int device = current_device();
  const nvml::Library* const library = nvml::Library::load(why_not);
  if (library == nullptr) return std::nullopt;
  std::array<char, 32> bus{};
  penstock::detail::check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device),
                          "cudaDeviceGetPCIBusId");
  const auto failed = [&](int status, const char* call) {
    if (status != nvml::kSuccess)
      why_not = std::string(call) + ": " + library->nvmlErrorString(status);
    return status != nvml::kSuccess;
  };
  nvml::Device handle = nullptr;
  unsigned percent = 0, period_us = 0;
  if (failed(library->nvmlDeviceGetHandleByPciBusId_v2(bus.data(), &handle),
             "nvmlDeviceGetHandleByPciBusId_v2") ||
      failed(library->nvmlDeviceGetDecoderUtilization(handle, &percent, &period_us),
             "nvmlDeviceGetDecoderUtilization"))
    return std::nullopt;
  return percent / 100.0;
}

}  // namespace penstock::video
