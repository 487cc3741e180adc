// SPDX-License-Identifier: Apache-2.0
#include "touched.hpp"

// NOLINTBEGIN(bugprone-reserved-identifier): the names that ThreadSanitizer gave. GCC knows them
// itself, with a signed number of bytes, and takes no other.
extern "C" {
[[gnu::weak]] void __tsan_read_range(void* memory, std::ptrdiff_t bytes);
[[gnu::weak]] void __tsan_write_range(void* memory, std::ptrdiff_t bytes);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace resnet::reference {

void tell(const Range& range) {
  if (range.memory == nullptr || range.bytes == 0) return;
  const auto touch = range.written ? &__tsan_write_range : &__tsan_read_range;
  if (touch != nullptr)
    touch(const_cast<void*>(range.memory), static_cast<std::ptrdiff_t>(range.bytes));
}

}  // namespace resnet::reference
