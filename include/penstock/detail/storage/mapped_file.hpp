// SPDX-License-Identifier: Apache-2.0
#pragma once

// MappedFile: a whole regular file in memory, read-only, for as long as the object lives. What the
// file loses meanwhile reads as zeros, and is known to be lost (SigbusGuard).
// Move-only; a moved-from one is empty.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <penstock/detail/storage/sigbus_guard.hpp>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace penstock::detail {

class MappedFile {
 public:
  /// Throws std::system_error when the file cannot be opened, is not a regular file, or cannot be
  /// mapped. An empty file is mapped to nothing.
  explicit MappedFile(const std::filesystem::path& path) {
    const Descriptor file(path);
    if (::fstat(file.number, &status_) != 0) fail("cannot read the size");
    if (!S_ISREG(status_.st_mode)) {
      errno = S_ISDIR(status_.st_mode) ? EISDIR : EINVAL;
      fail("not a regular file");
    }
    if (status_.st_size == 0) return;
    const auto size = static_cast<std::size_t>(status_.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number, 0);
    if (data == MAP_FAILED) fail("cannot map");
    bytes_ = {static_cast<const std::byte*>(data), size};
    const std::size_t page = page_bytes();
    range_ = &SigbusGuard::watch({bytes_.data(), (size + page - 1) / page * page});
  }
  MappedFile(MappedFile&& other) noexcept
      : status_(other.status_),
        bytes_(std::exchange(other.bytes_, {})),
        range_(std::exchange(other.range_, nullptr)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    MappedFile taken(std::move(other));
    std::swap(status_, taken.status_);
    std::swap(bytes_, taken.bytes_);
    std::swap(range_, taken.range_);
    return *this;
  }
  ~MappedFile() {
    if (range_ == nullptr) return;
    SigbusGuard::forget(*range_);
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// Bytes in front of the first page that is known to be lost; all of them where none is. A page
  /// is found to be lost when it is read.
  std::size_t intact_bytes() const noexcept {
    return range_ == nullptr ? 0 : std::min(range_->lost_from(), bytes_.size());
  }

  /// As intact_bytes, less what a file that was cut short has lost of its last page, which reads as
  /// zeros. Asks the system for the size of file `path`, from which this was mapped.
  std::size_t bytes_left(const std::filesystem::path& path) const noexcept {
    const std::size_t intact = intact_bytes();
    struct stat now {};
    if (::stat(path.c_str(), &now) == 0 && is_this(now))
      return std::min(intact, static_cast<std::size_t>(now.st_size));
    // Nobody knows the size of a file without a name: all of the last page may be lost.
    return intact == bytes_.size() ? intact : intact - std::min(intact, page_bytes());
  }

  /// How file `path` differs from the one that was mapped; empty: not at all, or nobody knows.
  std::string change(const std::filesystem::path& path) const {
    struct stat now {};
    if (::stat(path.c_str(), &now) != 0) return std::generic_category().message(errno);
    if (!is_this(now)) return "it is another file";
    if (now.st_size != status_.st_size)
      return "it has " + std::to_string(now.st_size) + " bytes, and had " +
             std::to_string(status_.st_size);
    if (now.st_mtim.tv_sec != status_.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != status_.st_mtim.tv_nsec)
      return "it was written to";
    return {};
  }

 private:
  struct Descriptor {
    // O_NONBLOCK: opening a pipe must be an error, not a wait for its other end.
    explicit Descriptor(const std::filesystem::path& path)
        : number(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
      if (number < 0) fail("cannot open");
    }
    ~Descriptor() { ::close(number); }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int number;
  };

  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  }

  bool is_this(const struct stat& other) const noexcept {
    return other.st_dev == status_.st_dev && other.st_ino == status_.st_ino;
  }

  struct stat status_ {};  // when it was mapped
  std::span<const std::byte> bytes_;
  WatchedRange* range_ = nullptr;
};

}  // namespace penstock::detail
