// SPDX-License-Identifier: Apache-2.0
#pragma once

// mapped(): a file as memory.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/detail/storage/store_file.hpp>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The bytes of `file`, at least 1, as memory that can only be read. The file may be closed
/// afterwards. Throws std::runtime_error if it is not of this machine, has become shorter, or
/// cannot be mapped. `instead`: what reads a file that is not of this machine.
inline std::shared_ptr<const std::byte> mapped(const StoreFile& file, const char* instead) {
  if (!file.is_local())
    throw std::runtime_error(std::string("only a file of this machine can be mapped: ") + instead);
  const int descriptor = file.file.descriptor();
  const std::uint64_t now = OpenFile::size_of(descriptor);
  if (now < file.bytes) throw std::runtime_error(shorter_by_now(now, file.bytes));
  const auto size = static_cast<std::size_t>(file.bytes);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) OpenFile::fail("cannot map the file");
  const auto unmap = [data, size](const std::byte*) { ::munmap(data, size); };
  return {static_cast<const std::byte*>(data), unmap};
}

}  // namespace penstock::detail
