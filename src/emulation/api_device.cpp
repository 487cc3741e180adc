// SPDX-License-Identifier: Apache-2.0
//
// Calls about devices.

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

constexpr int kProcessors = 16;

bool exists(const Call& call, int device) {
  return device >= 0 && device < static_cast<int>(call.runtime.devices.size());
}

/// Returns the PCI bus id; the first device has "0000:01:00.0".
std::string bus_id(int device) {
  char text[32];
  std::snprintf(text, sizeof text, "0000:%02x:00.0", static_cast<unsigned>(device + 1));
  return text;
}

void describe(const Machine& machine, int device, cudaDeviceProp& prop) {
  prop = cudaDeviceProp{};
  std::snprintf(prop.name, sizeof prop.name, "penstock emulated device");
  std::snprintf(prop.uuid.bytes, sizeof prop.uuid.bytes, "penstock %d", device);
  prop.totalGlobalMem = machine.device_bytes;
  prop.major = 9;
  prop.minor = 0;
  prop.multiProcessorCount = kProcessors;
  prop.asyncEngineCount = machine.copy_engines;
  prop.pciBusID = device + 1;
  prop.sharedMemPerBlock = 48 << 10;
  prop.sharedMemPerBlockOptin = 227 << 10;
  prop.sharedMemPerMultiprocessor = 228 << 10;
  prop.reservedSharedMemPerBlock = 1 << 10;
  prop.regsPerBlock = prop.regsPerMultiprocessor = 64 << 10;
  prop.warpSize = 32;
  prop.memPitch = 0x7fffffff;
  prop.maxThreadsPerBlock = 1024;
  prop.maxThreadsPerMultiProcessor = 2048;
  prop.maxBlocksPerMultiProcessor = 32;
  const int threads[] = {1024, 1024, 64}, blocks[] = {0x7fffffff, 65535, 65535};
  std::copy(std::begin(threads), std::end(threads), prop.maxThreadsDim);
  std::copy(std::begin(blocks), std::end(blocks), prop.maxGridSize);
  prop.totalConstMem = 64 << 10;
  prop.textureAlignment = 512;
  prop.texturePitchAlignment = 32;
  prop.memoryBusWidth = 5120;
  prop.l2CacheSize = 50 << 20;
  prop.canMapHostMemory = prop.concurrentKernels = prop.unifiedAddressing = 1;
  prop.streamPrioritiesSupported = prop.managedMemory = prop.concurrentManagedAccess = 1;
  prop.hostRegisterSupported = prop.canUseHostPointerForRegisteredMem = 1;
  prop.memoryPoolsSupported = prop.computePreemptionSupported = 1;
  prop.memoryPoolSupportedHandleTypes = cudaMemHandleTypePosixFileDescriptor;
  prop.ipcEventSupported = 1;
  set_no_numa(prop);
}

// The attributes that a member of cudaDeviceProp holds. Apart from the ones below, others are not
// emulated.
constexpr std::pair<cudaDeviceAttr, int cudaDeviceProp::*> kNumbers[] = {
    {cudaDevAttrMaxThreadsPerBlock, &cudaDeviceProp::maxThreadsPerBlock},
    {cudaDevAttrWarpSize, &cudaDeviceProp::warpSize},
    {cudaDevAttrMaxRegistersPerBlock, &cudaDeviceProp::regsPerBlock},
    {cudaDevAttrMaxRegistersPerMultiprocessor, &cudaDeviceProp::regsPerMultiprocessor},
    {cudaDevAttrMultiProcessorCount, &cudaDeviceProp::multiProcessorCount},
    {cudaDevAttrIntegrated, &cudaDeviceProp::integrated},
    {cudaDevAttrCanMapHostMemory, &cudaDeviceProp::canMapHostMemory},
    {cudaDevAttrConcurrentKernels, &cudaDeviceProp::concurrentKernels},
    {cudaDevAttrEccEnabled, &cudaDeviceProp::ECCEnabled},
    {cudaDevAttrPciBusId, &cudaDeviceProp::pciBusID},
    {cudaDevAttrPciDeviceId, &cudaDeviceProp::pciDeviceID},
    {cudaDevAttrPciDomainId, &cudaDeviceProp::pciDomainID},
    {cudaDevAttrTccDriver, &cudaDeviceProp::tccDriver},
    {cudaDevAttrGlobalMemoryBusWidth, &cudaDeviceProp::memoryBusWidth},
    {cudaDevAttrL2CacheSize, &cudaDeviceProp::l2CacheSize},
    {cudaDevAttrMaxThreadsPerMultiProcessor, &cudaDeviceProp::maxThreadsPerMultiProcessor},
    {cudaDevAttrMaxBlocksPerMultiprocessor, &cudaDeviceProp::maxBlocksPerMultiProcessor},
    {cudaDevAttrAsyncEngineCount, &cudaDeviceProp::asyncEngineCount},
    {cudaDevAttrUnifiedAddressing, &cudaDeviceProp::unifiedAddressing},
    {cudaDevAttrComputeCapabilityMajor, &cudaDeviceProp::major},
    {cudaDevAttrComputeCapabilityMinor, &cudaDeviceProp::minor},
    {cudaDevAttrStreamPrioritiesSupported, &cudaDeviceProp::streamPrioritiesSupported},
    {cudaDevAttrManagedMemory, &cudaDeviceProp::managedMemory},
    {cudaDevAttrConcurrentManagedAccess, &cudaDeviceProp::concurrentManagedAccess},
    {cudaDevAttrPageableMemoryAccess, &cudaDeviceProp::pageableMemoryAccess},
    {cudaDevAttrComputePreemptionSupported, &cudaDeviceProp::computePreemptionSupported},
    {cudaDevAttrCanUseHostPointerForRegisteredMem,
     &cudaDeviceProp::canUseHostPointerForRegisteredMem},
    {cudaDevAttrCooperativeLaunch, &cudaDeviceProp::cooperativeLaunch},
    {cudaDevAttrHostRegisterSupported, &cudaDeviceProp::hostRegisterSupported},
    {cudaDevAttrMemoryPoolsSupported, &cudaDeviceProp::memoryPoolsSupported},
    {cudaDevAttrIpcEventSupport, &cudaDeviceProp::ipcEventSupported},
    {cudaDevAttrClusterLaunch, &cudaDeviceProp::clusterLaunch},
};

constexpr std::pair<cudaDeviceAttr, std::size_t cudaDeviceProp::*> kSizes[] = {
    {cudaDevAttrMaxSharedMemoryPerBlock, &cudaDeviceProp::sharedMemPerBlock},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, &cudaDeviceProp::sharedMemPerBlockOptin},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, &cudaDeviceProp::sharedMemPerMultiprocessor},
    {cudaDevAttrReservedSharedMemoryPerBlock, &cudaDeviceProp::reservedSharedMemPerBlock},
    {cudaDevAttrTotalConstantMemory, &cudaDeviceProp::totalConstMem},
    {cudaDevAttrMaxPitch, &cudaDeviceProp::memPitch},
    {cudaDevAttrTextureAlignment, &cudaDeviceProp::textureAlignment},
    {cudaDevAttrTexturePitchAlignment, &cudaDeviceProp::texturePitchAlignment},
};

std::optional<int> attribute(const cudaDeviceProp& prop, cudaDeviceAttr which) {
  for (const auto& [attribute, member] : kNumbers)
    if (attribute == which) return prop.*member;
  for (const auto& [attribute, member] : kSizes)
    if (attribute == which) return static_cast<int>(prop.*member);
  switch (which) {
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
    case cudaDevAttrMaxBlockDimZ:
      return prop.maxThreadsDim[which - cudaDevAttrMaxBlockDimX];
    case cudaDevAttrMaxGridDimX:
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return prop.maxGridSize[which - cudaDevAttrMaxGridDimX];
    case cudaDevAttrGpuOverlap:
      return 1;
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
      return 0;
    case cudaDevAttrClockRate:  // in kHz; both clocks are those of an H200
      return 1'980'000;
    case cudaDevAttrMemoryClockRate:
      return 3'201'000;
    case cudaDevAttrMemoryPoolSupportedHandleTypes:
      return static_cast<int>(prop.memoryPoolSupportedHandleTypes);
    case cudaDevAttrComputeMode:
      return cudaComputeModeDefault;
    case cudaDevAttrNumaId:
    case cudaDevAttrHostNumaId:
      return -1;  // none
    default:
      return {};
  }
}

cudaError_t select(Call& call, int device) {
  if (call.runtime.devices.empty()) return cudaErrorNoDevice;
  if (!exists(call, device)) return cudaErrorInvalidDevice;
  call.thread.device = device;
  return cudaSuccess;
}

}  // namespace

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return enter(Function::cudaGetDeviceCount, [&](Call& call) {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = static_cast<int>(call.runtime.devices.size());
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return enter(Function::cudaGetDevice, [&](Call& call) {
    if (device == nullptr) return cudaErrorInvalidValue;
    if (call.runtime.devices.empty()) return cudaErrorNoDevice;
    *device = call.thread.device;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return enter(Function::cudaSetDevice, [&](Call& call) { return select(call, device); });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return enter(Function::cudaInitDevice, [&](Call& call) {
    return exists(call, device) ? cudaSuccess : cudaErrorInvalidDevice;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return enter(Function::cudaSetDeviceFlags, [&](Call& call) {
    if (flags > cudaDeviceMask) return cudaErrorInvalidValue;
    call.device().flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return enter(Function::cudaGetDeviceFlags, [&](Call& call) {
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = call.device().flags | cudaDeviceMapHost;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return enter(Function::cudaGetDeviceProperties, [&](Call& call) {
    if (prop == nullptr) return cudaErrorInvalidValue;
    if (!exists(call, device)) return cudaErrorInvalidDevice;
    describe(call.runtime.options.machine, device, *prop);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return enter(Function::cudaDeviceGetAttribute, [&](Call& call) {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!exists(call, device)) return cudaErrorInvalidDevice;
    cudaDeviceProp prop;
    describe(call.runtime.options.machine, device, prop);
    const std::optional<int> found = attribute(prop, which);
    *value = found.value_or(*value);
    return found ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return enter(Function::cudaDeviceGetPCIBusId, [&](Call& call) {
    if (text == nullptr || length <= 0) return cudaErrorInvalidValue;
    if (!exists(call, device)) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(length), "%s", bus_id(device).c_str());
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return enter(Function::cudaDeviceGetByPCIBusId, [&](Call& call) {
    if (device == nullptr || text == nullptr) return cudaErrorInvalidValue;
    for (*device = 0; exists(call, *device); ++*device)
      if (bus_id(*device) == text) return cudaSuccess;
    return cudaErrorInvalidDevice;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return enter(Function::cudaDeviceGetStreamPriorityRange, [&](Call&) {
    if (least != nullptr) *least = kLeastUrgent;
    if (greatest != nullptr) *greatest = kMostUrgent;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return enter(Function::cudaDeviceSynchronize, [&](Call& call) {
    const cudaError_t status = call.runtime.captures.admit_wait(call.device());
    if (status != cudaSuccess) return status;
    if (!call.runtime.await_idle(call.lock, &call.device(), true)) return cudaErrorCudartUnloading;
    call.runtime.trim_pools();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceReset() {
  return enter(Function::cudaDeviceReset, [&](Call& call) {
    const cudaError_t status = call.runtime.captures.admit_wait(call.device());
    if (status != cudaSuccess) return status;
    if (!call.runtime.await_idle(call.lock, &call.device(), true)) return cudaErrorCudartUnloading;
    call.runtime.destroy_all(call.device());
    call.device().peers.clear();
    call.device().flags = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return enter(Function::cudaMemGetInfo, [&](Call& call) {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    const Memory& memory = call.runtime.memory;
    *total = memory.device_total();
    *free = *total - memory.device_used(call.thread.device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return enter(Function::cudaDeviceCanAccessPeer, [&](Call& call) {
    if (can == nullptr) return cudaErrorInvalidValue;
    if (!exists(call, device) || !exists(call, peer)) return cudaErrorInvalidDevice;
    *can = device == peer ? 0 : 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr which, int source,
                                      int destination) {
  return enter(Function::cudaDeviceGetP2PAttribute, [&](Call& call) {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!exists(call, source) || !exists(call, destination) || source == destination)
      return cudaErrorInvalidDevice;
    switch (which) {
      case cudaDevP2PAttrAccessSupported:
        *value = 1;
        return cudaSuccess;
      case cudaDevP2PAttrPerformanceRank:  // All links are equal.
      case cudaDevP2PAttrNativeAtomicSupported:
      case cudaDevP2PAttrCudaArrayAccessSupported:
        *value = 0;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return enter(Function::cudaDeviceEnablePeerAccess, [&](Call& call) {
    if (flags != 0) return cudaErrorInvalidValue;
    if (!exists(call, peer) || peer == call.thread.device) return cudaErrorInvalidDevice;
    return call.device().peers.insert(peer).second ? cudaSuccess
                                                   : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return enter(Function::cudaDeviceDisablePeerAccess, [&](Call& call) {
    if (!exists(call, peer)) return cudaErrorInvalidDevice;
    return call.device().peers.erase(peer) == 1 ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return enter(Function::cudaDriverGetVersion, [&](Call&) {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return enter(Function::cudaRuntimeGetVersion, [&](Call&) {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaProfilerStart() {
  return enter(Function::cudaProfilerStart, [](Call&) { return cudaSuccess; });
}

cudaError_t cudaProfilerStop() {
  return enter(Function::cudaProfilerStop, [](Call&) { return cudaSuccess; });
}

}  // extern "C"
