// SPDX-License-Identifier: Apache-2.0
#pragma once

// FileMapping: the bytes of a file as memory that can only be read. An access to bytes that the
// file has no longer ends the process with SIGBUS.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <penstock/detail/read_only_file.hpp>
#include <utility>

namespace penstock::detail {

/// Move-only; a moved-from one maps nothing.
class FileMapping {
 public:
  /// Maps the first `bytes` bytes, at least 1. The file may be closed afterwards. Throws
  /// std::system_error.
  FileMapping(const ReadOnlyFile& file, std::uint64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        data_(::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.descriptor(), 0)) {
    if (data_ == MAP_FAILED) OpenFile::fail("cannot map the file");
  }
  FileMapping(FileMapping&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, MAP_FAILED)) {}
  FileMapping& operator=(FileMapping&&) = delete;
  ~FileMapping() {
    if (data_ != MAP_FAILED) ::munmap(data_, bytes_);
  }

  const std::byte* data() const noexcept { return static_cast<const std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace penstock::detail
