// SPDX-License-Identifier: Apache-2.0
#pragma once

// The debug option PENSTOCK_CHECKS: finds sources that write where they may not, or not at all, and
// programs that use memory after they gave it back. Define it for a whole program or not at all
// (the CMake option of this name does so); it makes every batch a little larger and a lot slower.
//
//   Around each field of a batch stand field_guard bytes that nobody may write.
//   A pinned block is filled with `blank` before the source gets it: a field that is still all
//   blank was not written, and a guard that is not was overrun.
//   Memory that was released, on the host and on the device, reads as `poison`; a released pinned
//   block that does not when it is handed out again was written meanwhile.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace penstock::detail {

#ifdef PENSTOCK_CHECKS
inline constexpr bool checks = true;
#else
inline constexpr bool checks = false;
#endif

inline constexpr std::size_t field_guard = checks ? 256 : 0;
inline constexpr unsigned char blank = 0xCB, poison = 0xDB;

/// The first of `bytes` bytes that is not `value`; `bytes` if all are.
inline std::size_t first_other(const std::byte* memory, std::size_t bytes, unsigned char value) {
  return static_cast<std::size_t>(
      std::find_if(memory, memory + bytes, [value](std::byte b) { return b != std::byte{value}; }) -
      memory);
}

/// Throws std::logic_error unless the source, in a block that was all blank, wrote into each of the
/// fields and nowhere else. A field of fewer than 8 bytes may be blank by chance, and passes.
template <class Layout>
void check_fields(const Layout& layout, const std::byte* block, std::int64_t samples) {
  constexpr std::size_t kTooShortToTell = 8;
  std::size_t index = 0, guard = 0;  // where the guard before the field begins
  const auto check_guard = [&](std::size_t end) {
    const std::size_t at = first_other(block + guard, end - guard, blank);
    if (at == end - guard) return;
    const std::string before = index == 0 ? ""
                                          : std::to_string(at) + " bytes behind the end of field " +
                                                std::to_string(index - 1);
    const std::string after =
        std::to_string(end - guard - at) + " bytes before field " + std::to_string(index);
    throw std::logic_error("the source wrote outside of its fields: " +
                           (index == 0 ? after : before));
  };
  layout.for_each_field([&](std::size_t offset, std::size_t sample_bytes) {
    check_guard(offset);
    const std::size_t bytes = static_cast<std::size_t>(samples) * sample_bytes;
    if (bytes >= kTooShortToTell && first_other(block + offset, bytes, blank) == bytes)
      throw std::logic_error("the source left field " + std::to_string(index) + " unwritten");
    guard = offset + static_cast<std::size_t>(layout.batch_size()) * sample_bytes;
    ++index;
  });
  check_guard(layout.bytes());
}

/// Throws std::logic_error unless a released block of `bytes` is as it was left.
inline void check_poison(const std::byte* block, std::size_t bytes) {
  const std::size_t at = first_other(block, bytes, poison);
  if (at != bytes)
    throw std::logic_error("a pinned block was written after its release, at byte " +
                           std::to_string(at) + " of " + std::to_string(bytes));
}

}  // namespace penstock::detail
