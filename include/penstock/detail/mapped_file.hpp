// SPDX-License-Identifier: Apache-2.0
#pragma once

// MappedFile: a whole regular file in memory, read-only, for as long as the object lives.
// Move-only; a moved-from one is empty.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

namespace penstock::detail {

class MappedFile {
 public:
  /// Throws std::system_error when the file cannot be opened, is not a regular file, or cannot be
  /// mapped. An empty file is mapped to nothing.
  explicit MappedFile(const std::filesystem::path& path) {
    const Descriptor file(path);
    struct stat status {};
    if (::fstat(file.number, &status) != 0) fail("cannot read the size");
    if (!S_ISREG(status.st_mode)) {
      errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
      fail("not a regular file");
    }
    if (status.st_size == 0) return;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number, 0);
    if (data == MAP_FAILED) fail("cannot map");
    bytes_ = {static_cast<const std::byte*>(data), size};
  }
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    MappedFile taken(std::move(other));
    std::swap(bytes_, taken.bytes_);
    return *this;
  }
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

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

  std::span<const std::byte> bytes_;
};

}  // namespace penstock::detail
