// SPDX-License-Identifier: Apache-2.0
#include "annotations.hpp"

#include <algorithm>

// NOLINTBEGIN(bugprone-reserved-identifier): the names that the sanitizers gave
extern "C" {
[[gnu::weak]] void AnnotateIgnoreSyncBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreSyncEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreReadsBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreReadsEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
[[gnu::weak]] void __tsan_read1(void* address);
[[gnu::weak]] void __tsan_write1(void* address);
[[gnu::weak]] void __tsan_write_range(void* address, unsigned long bytes);
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* data, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* data, std::size_t bytes);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

constexpr std::size_t kWrittenBytes = std::size_t{1} << 20;  // of a block; takes less than 1 ms

void hide() {
  if (!detects_races()) return;
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

void show() {
  if (!detects_races()) return;
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}

}  // namespace

bool detects_races() {
  return &__tsan_acquire != nullptr && &__tsan_release != nullptr &&
         &AnnotateIgnoreSyncBegin != nullptr;
}

Hidden::Hidden() {
  hide();
}
Hidden::~Hidden() {
  show();
}
Visible::Visible() {
  show();
}
Visible::~Visible() {
  hide();
}

// These calls are synchronisation themselves: ThreadSanitizer would ignore them while
// synchronisation is hidden.
void Edge::release() noexcept {
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  __tsan_release(&address_);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}

void Edge::acquire() const noexcept {
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  __tsan_acquire(&address_);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}

void Life::allocated(void* data, std::size_t bytes) noexcept {
  write(data, bytes);
}

void Life::freed(void* data, std::size_t bytes) noexcept {
  write(data, bytes);
}

void Life::write(void* data, std::size_t bytes) noexcept {
  if (!detects_races()) return;
  const Visible visible;
  __tsan_write1(&state_);
  __tsan_write_range(data, std::min(bytes, kWrittenBytes));
}

void Life::used() const noexcept {
  if (!detects_races()) return;
  const Visible visible;
  __tsan_read1(&state_);
}

void poison(void* data, std::size_t bytes) {
  if (&__asan_poison_memory_region != nullptr) __asan_poison_memory_region(data, bytes);
}

void unpoison(void* data, std::size_t bytes) {
  if (&__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(data, bytes);
}

}  // namespace penstock::emulation::detail
