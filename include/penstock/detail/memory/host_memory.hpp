// SPDX-License-Identifier: Apache-2.0
#pragma once

// HostAllocation: one piece of page-locked memory, on a NUMA node or wherever the system likes; it
// knows how to give itself back. usable_memory() is the ground for default caps.

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <new>
#include <penstock/cuda.hpp>
#include <penstock/pinned_pool.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace penstock::detail {

/// Bytes of memory that this process may use: the machine's, or its control group's limit.
inline std::size_t usable_memory() {
  const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  std::size_t bytes = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::size_t limit = 0;
  if (std::ifstream group("/sys/fs/cgroup/memory.max"); group >> limit)
    bytes = std::min(bytes, limit);
  return bytes;
}

class HostAllocation {
 public:
  HostAllocation() = default;

  /// `flags` are cudaHostAlloc's. `numa_node` -1: no preference. Throws CudaError, std::bad_alloc
  /// or std::system_error.
  HostAllocation(std::size_t bytes, unsigned flags, int numa_node) {
    // Allocation is illegal beside another thread's global stream capture, unless this thread opts
    // out.
    const CaptureModeGuard guard;
    if (numa_node >= 0)
      allocate_on_node(bytes, flags, numa_node);
    else
      allocate_pinned(bytes, flags);
    bytes_ = bytes;
  }

  HostAllocation(HostAllocation&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), free_(other.free_) {}
  HostAllocation& operator=(HostAllocation&& other) noexcept {
    HostAllocation taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(bytes_, taken.bytes_);
    std::swap(free_, taken.free_);
    return *this;
  }
  ~HostAllocation() {
    if (data_ != nullptr) free_(data_, bytes_);
  }

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void allocate_pinned(std::size_t bytes, unsigned flags) {
    void* data = nullptr;
    check(cudaHostAlloc(&data, bytes, flags), "cudaHostAlloc", bytes, flags);
    data_ = static_cast<std::byte*>(data);
    free_ = [](std::byte* block, std::size_t) noexcept {
      const CaptureModeGuard guard;
      cudaFreeHost(block);
    };
  }

  // Pages are bound to the node before anything touches them, then page-locked where they are.
  void allocate_on_node(std::size_t bytes, unsigned flags, int node) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    try {
      bind_to_node(data, bytes, node);
      const unsigned registered =
          (flags & cudaHostAllocPortable) != 0 ? cudaHostRegisterPortable : 0u;
      check(cudaHostRegister(data, bytes, registered), "cudaHostRegister", bytes, registered);
    } catch (...) {
      munmap(data, bytes);
      throw;
    }
    data_ = static_cast<std::byte*>(data);
    free_ = [](std::byte* block, std::size_t size) noexcept {
      const CaptureModeGuard guard;
      cudaHostUnregister(block);
      munmap(block, size);
    };
  }

  static void bind_to_node(void* data, std::size_t bytes, int node) {
    constexpr int kModeBind =
        2;  // MPOL_BIND of <numaif.h>, which is libnuma's header, not the kernel's
    constexpr int kMaxNodes = 1024;
    constexpr int kBits = 8 * sizeof(unsigned long);
    if (node >= kMaxNodes) throw std::invalid_argument("NUMA node " + std::to_string(node));
    std::array<unsigned long, kMaxNodes / kBits> nodes{};
    nodes[static_cast<std::size_t>(node / kBits)] = 1ul << (node % kBits);
    if (syscall(SYS_mbind, data, bytes, kModeBind, nodes.data(), kMaxNodes, 0) != 0)
      throw std::system_error(errno, std::generic_category(),
                              "cannot bind pinned memory to NUMA node " + std::to_string(node));
  }

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  void (*free_)(std::byte*, std::size_t) noexcept = nullptr;
};

}  // namespace penstock::detail
