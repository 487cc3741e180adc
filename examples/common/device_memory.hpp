// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceMemory: how many bytes of the current device a run takes, beyond what was taken when this
// object was made.
//
//   examples::DeviceMemory memory;   // before the first allocation of the run
//   memory.look();                   // where much is allocated: in a warm-up step, after the last
//   print(memory.most());
//
// The numbers are those of cudaMemGetInfo. So they hold all that the run causes on the device: its
// allocations, workspaces of libraries, graphs, and code that is loaded later. They do not hold
// CUDA's context, which is made before. They are of the whole device: what another process takes
// or frees meanwhile is in them, too.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <string>

#include "check.hpp"

namespace examples {

class DeviceMemory {
 public:
  /// Makes the context of the current device. Throws penstock::CudaError, as look() does.
  DeviceMemory() : before_(used()) {}

  /// Compares what is taken now with the most so far. Any thread whose current device is the same
  /// may call it. It does not wait for the device; but the driver takes microseconds for it.
  void look() {
    const std::size_t now = used();
    const std::size_t taken = now - std::min(now, before_);
    std::size_t most = most_.load();
    while (most < taken && !most_.compare_exchange_weak(most, taken)) {
    }
  }
  /// The most bytes that a look has found.
  std::size_t most() const { return most_; }

 private:
  static std::size_t used() {
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return total - free;
  }

  const std::size_t before_;
  std::atomic<std::size_t> most_{0};
};

/// As people read it: "1.65 GiB", "30.2 MiB".
inline std::string memory_text(std::size_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  char text[32];
  if (mebibytes < 1024)
    std::snprintf(text, sizeof(text), "%.1f MiB", mebibytes);
  else
    std::snprintf(text, sizeof(text), "%.2f GiB", mebibytes / 1024);
  return text;
}

}  // namespace examples
