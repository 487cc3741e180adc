// SPDX-License-Identifier: Apache-2.0
#pragma once

// Upstreams that keep account: memory of CUDA that is asked for and given back, and the two shapes
// of resource that an Upstream takes.
//
//   Memory memory(Memory::Kind::host);
//   PmrResource resource(memory);
//   PinnedPool pool({.max_bytes = 4096, .upstream = &resource});

#include <penstock/cuda.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory_resource>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include "catch.hpp"

namespace penstock::test {

/// Memory of CUDA. Knows of each block how many bytes it has and on which device it was asked for,
/// and whether it came back so; fails, takes its time or gives something else where told to.
class Memory {
 public:
  enum class Kind { host, device, pageable };
  explicit Memory(Kind kind) : kind_(kind) {}
  ~Memory() { CHECK(blocks_.empty()); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* take(std::size_t bytes, std::size_t alignment) {
    std::this_thread::sleep_for(delay);
    const std::lock_guard lock(mutex_);
    ++allocations;
    if (allocations == fails_at) throw std::runtime_error("the pool of the house is empty");
    if (gives_null) return nullptr;
    void* memory = allocate(bytes + shift);
    blocks_[static_cast<std::byte*>(memory) + shift] = {bytes, alignment, device()};
    in_use += bytes;
    return static_cast<std::byte*>(memory) + shift;
  }

  void put_back(void* memory, std::size_t bytes, std::size_t alignment) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(static_cast<std::byte*>(memory));
    if (block == blocks_.end() || block->second.bytes != bytes ||
        block->second.alignment != alignment ||
        (kind_ == Kind::device && block->second.device != device())) {
      ++wrong;
      return;
    }
    free(block->first - shift);
    blocks_.erase(block);
    in_use -= bytes;
    ++deallocations;
    if (throws_at_end) throw std::runtime_error("nobody hears this");
  }

  std::size_t fails_at = 0, shift = 0;
  bool gives_null = false, throws_at_end = false;
  std::chrono::milliseconds delay{0};
  std::size_t allocations = 0, deallocations = 0;
  std::atomic<std::size_t> in_use{0};
  std::size_t wrong = 0;  // deallocations of nothing, or with another size, or on another device

 private:
  struct Block {
    std::size_t bytes, alignment;
    int device;
  };
  static int device() { return penstock::current_device(); }
  void* allocate(std::size_t bytes) const {
    void* memory = nullptr;
    if (kind_ == Kind::pageable) return ::operator new(bytes, std::align_val_t(4096));
    if (kind_ == Kind::host)
      REQUIRE_CUDA(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable));
    else
      REQUIRE_CUDA(cudaMalloc(&memory, bytes));
    return memory;
  }
  void free(void* memory) const {
    if (kind_ == Kind::pageable)
      ::operator delete(memory, std::align_val_t(4096));
    else if (kind_ == Kind::host)
      cudaFreeHost(memory);
    else
      cudaFree(memory);
  }

  const Kind kind_;
  std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;
};

/// The shape of cuda::mr since CCCL 3.1, and of RMM: calls with a stream, and calls that are
/// synchronous.
class SyncResource {
 public:
  explicit SyncResource(Memory& memory) : memory_(&memory) {}
  void* allocate(cudaStream_t, std::size_t, std::size_t) {
    throw std::logic_error("with a stream");
  }
  void deallocate(cudaStream_t, void*, std::size_t, std::size_t) noexcept { ++memory_->wrong; }
  void* allocate_sync(std::size_t bytes, std::size_t alignment) {
    return memory_->take(bytes, alignment);
  }
  void deallocate_sync(void* memory, std::size_t bytes, std::size_t alignment) {
    memory_->put_back(memory, bytes, alignment);
  }

 private:
  Memory* memory_;
};

/// That of cuda::mr before, and of the standard library.
class PmrResource final : public std::pmr::memory_resource {
 public:
  explicit PmrResource(Memory& memory) : memory_(&memory) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return memory_->take(bytes, alignment);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    memory_->put_back(memory, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  Memory* memory_;
};

/// Page-locked memory of CUDA. Calls `before_second` when it is asked for the second time. Several
/// threads may ask: it checks nothing with Catch.
class BeforeSecond {
 public:
  explicit BeforeSecond(std::function<void()> before_second)
      : before_second_(std::move(before_second)) {}

  void* allocate(std::size_t bytes, std::size_t /*alignment*/) {
    if (++asked_ == 2) before_second_();
    void* memory = nullptr;
    detail::check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc", bytes);
    return memory;
  }
  void deallocate(void* memory, std::size_t /*bytes*/, std::size_t /*alignment*/) {
    cudaFreeHost(memory);
  }

 private:
  std::atomic<int> asked_{0};
  std::function<void()> before_second_;
};

}  // namespace penstock::test
