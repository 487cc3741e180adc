// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/dlpack.hpp>

#include <array>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI::dlpack::detail {

PENSTOCK_INLINE Device device_of(const void* memory) {
  cudaPointerAttributes attributes{};
  penstock::detail::check(cudaPointerGetAttributes(&attributes, memory),
                          "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeDevice) return {DeviceType::cuda, attributes.device};
  if (attributes.type == cudaMemoryTypeManaged)
    return {DeviceType::cuda_managed, attributes.device};
  throw std::invalid_argument(
      "dlpack: the memory of the field is no CUDA device's: a lease owns the memory of its fields, "
      "not what a plain value (Layout::value) points to; or name the device at the construction of "
      "the SharedLease");
}

/// Returns the name that NumPy uses, such as int32 or bfloat16; with lanes, such as float16x4.
PENSTOCK_INLINE std::string text(DataType type) {
  constexpr std::array names{"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  std::string name = type.code < names.size()
                         ? names[type.code]
                         : "of type code " + std::to_string(type.code) + " and bits ";
  if (type != data_type<bool>) name += std::to_string(type.bits);
  return type.lanes == 1 ? name : name + "x" + std::to_string(type.lanes);
}

PENSTOCK_INLINE std::string text(DeviceType type) {
  switch (type) {
    case DeviceType::cpu:
      return "the CPU";
    case DeviceType::cuda:
      return "a CUDA device";
    case DeviceType::cuda_host:
      return "page-locked memory of the host";
    case DeviceType::cuda_managed:
      return "managed memory of CUDA";
  }
  return "device type " + std::to_string(static_cast<std::int32_t>(type));
}

[[noreturn]] PENSTOCK_INLINE void reject_import(const std::string& why) {
  throw std::invalid_argument("dlpack: cannot import the tensor: " + why);
}

/// Throws unless the tensor's elements, of `bytes` bytes each, are contiguous in row-major order.
/// Returns their number. The other extents are checked for overflow even if one extent is 0, since
/// strides are computed from them.
PENSTOCK_INLINE std::int64_t require_row_major(const TensorView& tensor, std::int64_t bytes) {
  std::int64_t elements = 1, all = bytes;
  for (std::int32_t i = 0; i < tensor.ndim; ++i) {
    const std::int64_t extent = tensor.shape[i];
    if (extent < 0) reject_import("extent " + std::to_string(i) + " is " + std::to_string(extent));
    if (extent != 0 && __builtin_mul_overflow(all, extent, &all))
      reject_import("its extents, times " + std::to_string(bytes) +
                    " bytes of an element, are beyond 63 bits at extent " + std::to_string(i) +
                    ", which is " + std::to_string(extent));
    elements = extent == 0 ? 0 : elements * extent;
  }
  if (elements == 0 || tensor.strides == nullptr) return elements;
  std::int64_t stride = 1;
  for (std::int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride)
      reject_import("stride " + std::to_string(i) + " is " + std::to_string(tensor.strides[i]) +
                    ", " + std::to_string(stride) +
                    " in a row-major tensor: make it contiguous (PyTorch: contiguous())");
    stride *= tensor.shape[i];
  }
  return elements;
}

PENSTOCK_INLINE void* require_importable(const ManagedTensor& tensor, DataType type,
                                         std::size_t alignment, std::int32_t rank, bool writable,
                                         DeviceType where) {
  if (tensor.version.major_version != abi_version.major_version)  // Another version may have
                                                                  // another layout.
    reject_import("it is of DLPack " + std::to_string(tensor.version.major_version) + "." +
                  std::to_string(tensor.version.minor_version) + ", not 1.x");
  const TensorView& view = tensor.dl_tensor;
  if (view.dtype != type)
    reject_import("its elements are " + text(view.dtype) + ", expected " + text(type));
  if (view.ndim != rank)
    reject_import("its rank is " + std::to_string(view.ndim) + ", expected " +
                  std::to_string(rank));
  if (view.device.device_type != where)
    reject_import("it is on " + text(view.device.device_type) + ", expected on " + text(where));
  if (writable && (tensor.flags & read_only) != 0)
    reject_import("it is read-only: import it as a tensor of const elements");
  const std::int64_t elements = require_row_major(view, (type.bits + 7) / 8 * type.lanes);
  if (view.data == nullptr) {
    if (elements != 0) reject_import("it has elements, and no memory");
    return nullptr;
  }
  std::uintptr_t end = 0;
  if (__builtin_add_overflow(reinterpret_cast<std::uintptr_t>(view.data), view.byte_offset, &end))
    reject_import("its byte_offset is " + std::to_string(view.byte_offset) +
                  ", beyond the end of all memory");
  std::byte* const first = static_cast<std::byte*>(view.data) + view.byte_offset;
  if (elements == 0) return first;
  if (reinterpret_cast<std::uintptr_t>(first) % alignment != 0)
    reject_import("its memory is not aligned to " + std::to_string(alignment) + " bytes");
  return first;
}

}  // namespace penstock::dlpack::detail
