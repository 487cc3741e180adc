// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mistakes in the order of CUDA work. Each is a function that is right or wrong by one line; under
// ThreadSanitizer over the emulated runtime the wrong version must be reported as a data race,
// under every schedule, and the right one must not.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <penstock/cuda.hpp>

namespace races {

enum class Version { right, wrong };

// The host against the device.
void overwrite_source(Version version);           ///< of a copy that may not have read it
void read_result(Version version);                ///< of a copy that may not have written it
void stream_wait_for_host_wait(Version version);  ///< takes the one for the other
void hand_to_other_thread(Version version);       ///< and forget that a copy still reads
void overwrite_graph_source(Version version);     ///< of a replay that may not have read it

// Stream against stream.
void no_wait(Version version);                    ///< between the writing and the reading stream
void record_before_copy(Version version);         ///< so that the event does not cover the copy
void wait_before_record(Version version);         ///< so that there is nothing to wait for
void host_function_beside_copy(Version version);  ///< that writes what the function reads
void reuse_device_memory(Version version);        ///< that another stream may still read
void free_while_used(Version version);  ///< by another stream, in stream order of the first
void legacy_beside_non_blocking(Version version);         ///< streams, which do not synchronise
void pageable_copy_beside_non_blocking(Version version);  ///< streams: the same, less visibly

constexpr std::size_t size = 4096;  // bytes of every buffer

/// `size` bytes of page-locked host memory.
class Pinned {
 public:
  Pinned() { penstock::detail::check(cudaMallocHost(&data_, size), "cudaMallocHost", size); }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  unsigned char* data() const noexcept { return static_cast<unsigned char*>(data_); }
  void fill(unsigned char value) const noexcept {
    for (std::size_t i = 0; i < size; ++i) data()[i] = value;
  }
  void read() const noexcept {
    for (std::size_t i = 0; i < size; ++i) static_cast<const volatile unsigned char*>(data())[i];
  }

 private:
  void* data_ = nullptr;
};

/// `size` bytes of device memory.
class Device {
 public:
  Device() { penstock::detail::check(cudaMalloc(&data_, size), "cudaMalloc", size); }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void* data() const noexcept { return data_; }

 private:
  void* data_ = nullptr;
};

inline void copy(const Device& to, const Pinned& from, cudaStream_t stream) {
  penstock::detail::check(
      cudaMemcpyAsync(to.data(), from.data(), size, cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
}
inline void copy(const Pinned& to, const Device& from, cudaStream_t stream) {
  penstock::detail::check(
      cudaMemcpyAsync(to.data(), from.data(), size, cudaMemcpyDeviceToHost, stream),
      "cudaMemcpyAsync");
}

}  // namespace races
