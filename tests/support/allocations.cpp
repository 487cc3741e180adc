// SPDX-License-Identifier: Apache-2.0

#include "allocations.hpp"

#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <new>

#include "support/sanitized.hpp"

namespace {

[[maybe_unused]] thread_local std::uint64_t allocations = 0;
[[maybe_unused]] thread_local std::int64_t bytes_held = 0;

[[maybe_unused]] void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  bytes_held += static_cast<std::int64_t>(::malloc_usable_size(memory));
  return memory;
}

[[maybe_unused]] void release(void* memory) noexcept {
  bytes_held -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

std::uint64_t penstock::test::allocations_of_this_thread() noexcept {
  return allocations;
}
std::int64_t penstock::test::bytes_of_this_thread() noexcept {
  return bytes_held;
}

// The sanitizers replace operator new themselves, and want to see it paired with its delete.
#if !PENSTOCK_TEST_SANITIZED
// The array and the nothrow forms call these two, by their defaults in the standard library.
void* operator new(std::size_t bytes) {
  return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}
#endif
