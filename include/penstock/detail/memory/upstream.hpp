// SPDX-License-Identifier: Apache-2.0
#pragma once

// Allocates the memory of pools and arenas from an upstream, and checks what the upstream returns.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <penstock/upstream.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

enum class MemoryKind { page_locked, device };

/// The alignment that is requested. Memory resources such as those of RMM refuse a larger one.
inline constexpr std::size_t upstream_alignment = 256;

/// Describes the requested block for messages. Device memory belongs to the current device.
inline std::string asked_for(MemoryKind kind, std::size_t bytes) {
  return std::to_string(bytes) + " bytes of " +
         (kind == MemoryKind::device ? "memory of device " + std::to_string(current_device())
                                     : "page-locked memory");
}

inline const char* to_string(cudaMemoryType type) {
  switch (type) {
    case cudaMemoryTypeHost:
      return "page-locked memory of the host";
    case cudaMemoryTypeDevice:
      return "device memory";
    case cudaMemoryTypeManaged:
      return "managed memory";
    default:
      return "memory of the host that is not page-locked";
  }
}

/// Returns what is wrong with a block; empty: nothing.
inline std::string why_unfit(MemoryKind kind, const void* memory) {
  if (memory == nullptr) return "it gave a null pointer";
  if (reinterpret_cast<std::uintptr_t>(memory) % upstream_alignment != 0)
    return "what it gave is not aligned to " + std::to_string(upstream_alignment) + " bytes";
  cudaPointerAttributes is{};
  check(cudaPointerGetAttributes(&is, memory), "cudaPointerGetAttributes");
  const bool managed = is.type == cudaMemoryTypeManaged;
  if (kind == MemoryKind::page_locked)
    return is.type == cudaMemoryTypeHost ? "" : std::string("it gave ") + to_string(is.type);
  if (is.type != cudaMemoryTypeDevice && !managed)
    return std::string("it gave ") + to_string(is.type);
  if (is.device != current_device() && !managed)
    return "it gave memory of device " + std::to_string(is.device);
  return "";
}

/// Memory with the function that frees it.
using OwnedMemory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;

/// Allocates a block of `bytes`; device memory is on the current device. Throws MemoryError.
inline OwnedMemory take_from(const Upstream& upstream, std::size_t bytes, MemoryKind kind) {
  const CaptureModeGuard guard;
  std::optional<int> device;
  if (kind == MemoryKind::device) device = current_device();
  OwnedMemory owned(nullptr, [resource = upstream.resource(), bytes, device](std::byte* block) {
    const CaptureModeGuard relaxed;
    try {
      std::optional<DeviceGuard> on;
      if (device) on.emplace(*device);
      resource->deallocate(block, bytes, upstream_alignment);
    } catch (...) {  // Errors are ignored. If its device cannot be made current, the memory is
                     // leaked.
    }
  });
  try {
    owned.reset(static_cast<std::byte*>(upstream.resource()->allocate(bytes, upstream_alignment)));
  } catch (...) {
    throw MemoryError(asked_for(kind, bytes) + " were refused: " + what_is_handled(), bytes);
  }
  const std::string why = why_unfit(kind, owned.get());
  if (!why.empty())
    throw MemoryError(asked_for(kind, bytes) + " were asked for, and " + why, bytes);
  return owned;
}

}  // namespace penstock::detail
