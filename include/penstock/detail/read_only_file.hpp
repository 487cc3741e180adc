// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadOnlyFile: a regular file that is open for reading, by any number of threads. The stores read
// it: of a file that another process cuts, a read brings fewer bytes, and a mapping ends this
// process with SIGBUS. Only MappedRecords maps it.

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <penstock/detail/open_file.hpp>
#include <span>

namespace penstock::detail {

/// Move-only; a moved-from one has no file.
class ReadOnlyFile : public OpenFile {
 public:
  /// Throws std::system_error when the file cannot be opened, or is not a regular file.
  explicit ReadOnlyFile(const std::filesystem::path& path) : ReadOnlyFile(path.c_str()) {}
  /// O_NONBLOCK: opening a pipe must be an error, not a wait for its other end.
  explicit ReadOnlyFile(const char* path) : OpenFile(path, O_RDONLY | O_NONBLOCK) {
    if (!is_open()) fail("cannot open");
    require_regular();
  }

  using OpenFile::read;
  /// The same to several places, by one system call. Returns how many bytes came; fewer also where
  /// the system cannot read.
  std::size_t read(std::uint64_t offset, std::span<const ::iovec> targets) const noexcept {
    const auto begin = static_cast<::off_t>(offset);
    const ::ssize_t count =
        targets.size() == 1
            ? ::pread(descriptor(), targets[0].iov_base, targets[0].iov_len, begin)
            : ::preadv(descriptor(), targets.data(), static_cast<int>(targets.size()), begin);
    return count > 0 ? static_cast<std::size_t>(count) : 0;
  }

  /// Asks the system to have these bytes in memory soon; 0 bytes: all up to the end. A hint: it has
  /// no errors.
  void will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    ::posix_fadvise(descriptor(), static_cast<::off_t>(offset), static_cast<::off_t>(bytes),
                    POSIX_FADV_WILLNEED);
  }
};

}  // namespace penstock::detail
