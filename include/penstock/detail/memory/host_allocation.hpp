// SPDX-License-Identifier: Apache-2.0
#pragma once

// HostAllocation: owns page-locked memory, which comes from a given NUMA node, from the system
// without a preference, or from an upstream.

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <new>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/upstream.hpp>
#include <penstock/error.hpp>
#include <penstock/upstream.hpp>
#include <stdexcept>
#include <string>
#include <system_error>

namespace penstock::inline PENSTOCK_ABI::detail {

class HostAllocation {
 public:
  HostAllocation() = default;

  /// `flags`: those of cudaHostAlloc. `numa_node`: -1 means no preference. An upstream gets
  /// neither. Throws CudaError, std::bad_alloc or std::system_error; MemoryError for an upstream.
  HostAllocation(std::size_t bytes, unsigned flags, int numa_node, const Upstream& upstream = {})
      : bytes_(bytes) {
    // Otherwise a global stream capture on another thread would forbid the allocation.
    const CaptureModeGuard guard;
    if (upstream)
      memory_ = take_from(upstream, bytes, MemoryKind::page_locked);
    else if (numa_node >= 0)
      allocate_on_node(bytes, flags, numa_node);
    else
      allocate_pinned(bytes, flags);
  }

  /// Throws std::invalid_argument if these flags cannot be used with an upstream, or with a node.
  static void require(unsigned flags, int numa_node, const Upstream& upstream) {
    if (upstream && (flags != cudaHostAllocPortable || numa_node >= 0))
      throw std::invalid_argument(
          "a pinned pool with an upstream: flags and numa_node are for cudaHostAlloc; leave them "
          "as they are, and have the upstream place its memory");
    // Memory on a node is registered. cudaHostRegister supports only these two flags of
    // cudaHostAlloc.
    if (numa_node >= 0 && (flags & ~unsigned{cudaHostAllocPortable | cudaHostAllocMapped}) != 0)
      throw std::invalid_argument(
          "pinned memory on a NUMA node takes the flags cudaHostAllocPortable and "
          "cudaHostAllocMapped, and cannot be write-combined: leave out the other flags, or leave "
          "numa_node at -1 and allocate on a thread of that node");
  }

  /// Rethrows the failure of an allocation of `bytes` bytes. If there was no memory, throws
  /// PoolExhausted instead, with `used` bytes in use of at most `cap`. Call it in the exception
  /// handler.
  [[noreturn]] static void throw_refusal(std::size_t bytes, std::size_t used, std::size_t cap) {
    const std::string why =
        "the system refuses more page-locked memory: use smaller or fewer batches (host_depth), or "
        "raise its limit";
    try {
      throw;
    } catch (const CudaError& error) {
      if (error.code() == cudaErrorMemoryAllocation) throw PoolExhausted(why, bytes, used, cap);
      throw;
    } catch (const std::bad_alloc&) {
      throw PoolExhausted(why, bytes, used, cap);
    }
  }

  /// Returns the error for a block that is lost because the query of its copy returned `status`.
  static SavedError lost_to(cudaError_t status) {
    return {status, std::string("cudaEventQuery failed: ") + cudaGetErrorString(status) +
                        "; the page-locked block is lost, a copy may still read it"};
  }

  std::byte* data() const noexcept { return memory_.get(); }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void allocate_pinned(std::size_t bytes, unsigned flags) {
    void* data = nullptr;
    check(cudaHostAlloc(&data, bytes, flags), "cudaHostAlloc", bytes, flags);
    memory_ = {static_cast<std::byte*>(data), [](std::byte* block) {
                 const CaptureModeGuard guard;
                 cudaFreeHost(block);
               }};
  }

  // The pages are bound to the node before they are touched, and then page-locked. The flags of
  // cudaHostRegister have the same values as those of cudaHostAlloc.
  static_assert(cudaHostAllocPortable == cudaHostRegisterPortable &&
                cudaHostAllocMapped == cudaHostRegisterMapped);
  void allocate_on_node(std::size_t bytes, unsigned flags, int node) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    try {
      bind_to_node(data, bytes, node);
      check(cudaHostRegister(data, bytes, flags), "cudaHostRegister", bytes, flags);
    } catch (...) {
      munmap(data, bytes);
      throw;
    }
    memory_ = {static_cast<std::byte*>(data), [bytes](std::byte* block) {
                 const CaptureModeGuard guard;
                 cudaHostUnregister(block);
                 munmap(block, bytes);
               }};
  }

  static void bind_to_node(void* data, std::size_t bytes, int node) {
    constexpr int kModeBind =
        2;  // MPOL_BIND of <numaif.h>, which is libnuma's header, not the kernel's
    constexpr int kMaxNodes = 1024;
    constexpr int kBits = 8 * sizeof(unsigned long);
    if (node >= kMaxNodes)
      throw std::invalid_argument("numa_node is " + std::to_string(node) + ", must be below " +
                                  std::to_string(kMaxNodes));
    std::array<unsigned long, kMaxNodes / kBits> nodes{};
    nodes[static_cast<std::size_t>(node / kBits)] = 1ul << (node % kBits);
    if (syscall(SYS_mbind, data, bytes, kModeBind, nodes.data(), kMaxNodes, 0) != 0)
      throw std::system_error(errno, std::generic_category(),
                              "cannot bind pinned memory to NUMA node " + std::to_string(node) +
                                  ": set numa_node to one that /sys/devices/system/node lists");
  }

  OwnedMemory memory_;
  std::size_t bytes_ = 0;
};

}  // namespace penstock::detail
