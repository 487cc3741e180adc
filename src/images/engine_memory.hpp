// SPDX-License-Identifier: Apache-2.0
#pragma once

// EngineMemory: memory for a library that allocates and frees whenever it likes, in stream order.
// Blocks are kept and given again, so after warm-up nothing is allocated and nothing synchronises.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <penstock/cuda.hpp>
#include <vector>

namespace penstock::images {

/// Of the device that is current. Any thread may call any member.
class EngineMemory {
 public:
  enum class Kind { device, pinned };

  explicit EngineMemory(Kind kind) : kind_(kind) {}
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;
  /// Frees all blocks; nothing may use them any more.
  ~EngineMemory();

  /// At least `bytes` bytes, for work on `stream`. Device memory may be a block whose last stream
  /// still uses it: `stream` waits. Page-locked memory, which the host writes at once, is never
  /// one. Throws CudaError.
  void* take(std::size_t bytes, cudaStream_t stream);
  /// `stream` holds the last work that uses the block. False: it is no block of this memory, or the
  /// event could not be recorded; the block is then never used again.
  bool give(void* memory, cudaStream_t stream) noexcept;

  std::uint64_t allocations() const;  ///< so far
  std::uint64_t bytes() const;        ///< allocated now

 private:
  struct Block {
    void* memory = nullptr;
    std::size_t bytes = 0;
    Event freed;
    bool in_use = true;
  };

  Block* find(std::size_t bytes);
  void* allocate(std::size_t bytes);

  const Kind kind_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::uint64_t bytes_ = 0;
};

}  // namespace penstock::images
