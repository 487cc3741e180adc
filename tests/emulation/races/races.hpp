// SPDX-License-Identifier: Apache-2.0
#pragma once

// Programs whose CUDA work is ordered rightly, or wrongly by one line. Under ThreadSanitizer over
// the emulated runtime the wrong version must be reported as a data race, under every schedule, and
// the right one must not. A few wrong versions are never reported: those say why, and
// docs/emulation-rules.md lists them (scripts/doc_site/rules.py reads the lists of scenarios).

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <penstock/cuda.hpp>
#include <thread>
#include <vector>

namespace races {

enum class Version { right, wrong };

constexpr bool is_right(Version version) {
  return version == Version::right;
}

struct Scenario {
  const char* name;
  void (*run)(Version version);
  const char* unseen = nullptr;  ///< why ThreadSanitizer cannot see the wrong version
};

extern const std::vector<Scenario> host_races;       ///< the host against the device
extern const std::vector<Scenario> stream_races;     ///< stream against stream
extern const std::vector<Scenario> ended_streams;    ///< that end before somebody waits for them
extern const std::vector<Scenario> ordered_memory;   ///< of cudaMallocAsync, used and freed
extern const std::vector<Scenario> explicit_graphs;  ///< edges between their nodes
extern const std::vector<Scenario> pipelines;        ///< threads, events, graphs, host functions
extern const std::vector<Scenario> areas;            ///< parts of buffers, rows, boxes, devices
extern const std::vector<Scenario> mistakes;         ///< waits that are not what they look like
extern const std::vector<Scenario> primitives;       ///< penstock's own, on several streams

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

/// Throws when the call failed.
inline void must(cudaError_t status) {
  penstock::detail::check(status, "a call of CUDA");
}

/// Returns when all that was queued so far has ended, under every schedule, and orders nothing.
inline void let_work_end() {
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
}

/// Captures what `queue` puts on the stream.
template <class Queue>
cudaGraphExec_t capture(cudaStream_t stream, Queue queue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  queue();
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  must(cudaGraphDestroy(graph));
  return exec;
}

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

/// Page-locked memory that goes to the device and back, in one stream.
struct Trip {
  Pinned source, result;
  Device device;

  Trip() { source.fill(1); }
  void queue(cudaStream_t stream) const {
    copy(device, source, stream);
    copy(result, device, stream);
  }
};

/// What a host function writes. It has 8 bytes to itself: ThreadSanitizer remembers only four
/// accesses to each aligned 8 bytes, and would forget one of them for those of a neighbour.
struct alignas(8) Number {
  volatile int value = 0;  // so that no access is optimised away
  void add_one() { value = value + 1; }
};

}  // namespace races
