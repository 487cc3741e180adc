// SPDX-License-Identifier: Apache-2.0
#pragma once

// Buffers: memory for bytes that have no place yet, up to a sum.

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <penstock/version.hpp>
#include <span>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::remote {

class Buffers;

/// Memory of Buffers, which gets it back at the end. Move-only; may be empty.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        memory_(std::move(other.memory_)),
        size_class_(other.size_class_) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(memory_, other.memory_);
    std::swap(size_class_, other.size_class_);
    return *this;
  }
  ~Buffer();

  std::byte* data() const noexcept { return memory_.get(); }
  explicit operator bool() const noexcept { return memory_ != nullptr; }

 private:
  friend class Buffers;
  Buffers* pool_ = nullptr;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_class_ = 0;
};

/// Any number of threads may use it. Buffers have a power of two of bytes, from 64 KiB on, and what
/// is given back is kept for the next of its size.
class Buffers {
 public:
  explicit Buffers(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  /// At least `bytes`, with any contents; an empty buffer where there is no room or no memory.
  Buffer take(std::size_t bytes) noexcept;

 private:
  friend class Buffer;
  using Memory = std::unique_ptr<std::byte[]>;

  void give_back(Memory memory, std::size_t size_class) noexcept;
  bool make_room(std::size_t bytes) noexcept;

  const std::size_t most_bytes_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;                     // of all buffers
  std::array<std::vector<Memory>, 24> free_;  // by size class
};

}  // namespace penstock::remote
