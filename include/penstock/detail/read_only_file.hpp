// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadOnlyFile: a regular file that is open for reading, by any number of threads. The stores read
// it: of a file that another process cuts, a read brings fewer bytes, and a mapping ends this
// process with SIGBUS. Only MappedRecords maps it.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

namespace penstock::detail {

/// Move-only; a moved-from one has no file.
class ReadOnlyFile {
 public:
  /// Throws std::system_error when the file cannot be opened, or is not a regular file.
  explicit ReadOnlyFile(const std::filesystem::path& path) : ReadOnlyFile(path.c_str()) {}
  explicit ReadOnlyFile(const char* path) : descriptor_{open(path)} {
    if (descriptor_.number < 0) fail("cannot open");
    struct stat status {};
    if (::fstat(descriptor_.number, &status) != 0) fail("cannot read the size");
    if (!S_ISREG(status.st_mode)) {
      errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
      fail("not a regular file");
    }
  }

  /// Bytes now.
  std::uint64_t size() const {
    struct stat status {};
    if (::fstat(descriptor_.number, &status) != 0) fail("cannot read the size");
    return static_cast<std::uint64_t>(status.st_size);
  }

  /// Fills `target` with the bytes from `offset` on. Returns how many there were: fewer than asked
  /// for where the file ends. Throws std::system_error.
  std::size_t read(std::uint64_t offset, std::span<std::byte> target) const {
    std::size_t done = 0;
    while (done < target.size()) {
      const ::ssize_t count = ::pread(descriptor_.number, target.data() + done,
                                      target.size() - done, static_cast<::off_t>(offset + done));
      if (count == 0) break;
      if (count > 0) done += static_cast<std::size_t>(count);
      if (count < 0 && errno != EINTR) fail("cannot read");
    }
    return done;
  }

  /// The same to several places, by one system call. Returns how many bytes came; fewer also where
  /// the system cannot read.
  std::size_t read(std::uint64_t offset, std::span<const ::iovec> targets) const noexcept {
    const auto begin = static_cast<::off_t>(offset);
    const ::ssize_t count =
        targets.size() == 1
            ? ::pread(descriptor_.number, targets[0].iov_base, targets[0].iov_len, begin)
            : ::preadv(descriptor_.number, targets.data(), static_cast<int>(targets.size()), begin);
    return count > 0 ? static_cast<std::size_t>(count) : 0;
  }

  /// Asks the system to have these bytes in memory soon; 0 bytes: all up to the end. A hint: it has
  /// no errors.
  void will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    ::posix_fadvise(descriptor_.number, static_cast<::off_t>(offset), static_cast<::off_t>(bytes),
                    POSIX_FADV_WILLNEED);
  }

  int descriptor() const noexcept { return descriptor_.number; }

 private:
  struct Descriptor {
    explicit Descriptor(int opened) : number(opened) {}
    Descriptor(Descriptor&& other) noexcept : number(std::exchange(other.number, -1)) {}
    Descriptor& operator=(Descriptor&&) = delete;
    ~Descriptor() {
      if (number >= 0) ::close(number);
    }
    int number;
  };

  /// Of a file on a network a signal may interrupt it.
  static int open(const char* path) {
    int number = -1;
    do {  // O_NONBLOCK: opening a pipe must be an error, not a wait for its other end.
      number = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (number < 0 && errno == EINTR);
    return number;
  }

  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  }

  Descriptor descriptor_;
};

}  // namespace penstock::detail
