// SPDX-License-Identifier: Apache-2.0
#pragma once

// reopened_direct(): opens a file that is open already a second time, to be read past the page
// cache (O_DIRECT), and asks the system how such reads have to be aligned.

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdio>
#include <penstock/detail/open_file.hpp>
#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

struct ReopenedDirect {
  OpenFile file;  // not open: the file system cannot do it, or the file cannot be opened again
  // In bytes. A page suits all devices of which the system does not tell the alignment.
  std::size_t offset_alignment = 4096, memory_alignment = 4096;
};

/// Sets what the system tells. False: it tells that direct reads are not possible.
inline bool ask_alignment(ReopenedDirect& direct) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (::statx(direct.file.descriptor(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) != 0 ||
      (status.stx_mask & STATX_DIOALIGN) == 0)
    return true;
  const std::size_t offset = status.stx_dio_offset_align, memory = status.stx_dio_mem_align;
  if (!std::has_single_bit(offset) || !std::has_single_bit(memory)) return false;
  direct.offset_alignment = offset;
  direct.memory_alignment = memory;
  return offset <= 4096 && memory <= 4096;
#else
  static_cast<void>(direct);
  return true;
#endif
}

/// By the descriptor, so that it is the same file even if it has lost its name; without /proc by
/// `name`, if that is the same file still.
inline ReopenedDirect reopened_direct(const OpenFile& file, const std::string& name) noexcept try {
  std::array<char, 64> link;
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", file.descriptor());
  ReopenedDirect direct{.file = OpenFile(link.data(), O_RDONLY | O_DIRECT)};
  if (!direct.file.is_open())
    direct.file = OpenFile(name.c_str(), O_RDONLY | O_DIRECT | O_NONBLOCK);
  if (!direct.file.is_open()) return {};
  const struct stat now = direct.file.status(), before = file.status();
  if (now.st_dev != before.st_dev || now.st_ino != before.st_ino) return {};
  return ask_alignment(direct) ? std::move(direct) : ReopenedDirect{};
} catch (const std::system_error&) {
  return {};
}

}  // namespace penstock::detail
