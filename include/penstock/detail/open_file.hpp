// SPDX-License-Identifier: Apache-2.0
#pragma once

// OpenFile and ReadOnlyFile: an open file. System calls that are interrupted by a signal are
// repeated. Errors are thrown as std::system_error, whose text does not name the file.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <penstock/version.hpp>
#include <span>
#include <system_error>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Repeats `call` until it is not interrupted by a signal. `call` reports an error by a negative
/// result and errno.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Move-only; a moved-from object has no file. Threads may call the const members concurrently.
class OpenFile {
 public:
  OpenFile() = default;
  /// Opens the file. If that fails, is_open() is false and errno has the reason.
  OpenFile(const char* path, int flags)
      : number_(uninterrupted([&] { return ::open(path, flags | O_CLOEXEC, 0666); })) {}
  /// A descriptor that is open; negative: there is none.
  static OpenFile of(int descriptor) {
    OpenFile file;
    file.number_ = descriptor;
    return file;
  }
  OpenFile(OpenFile&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~OpenFile() {
    if (number_ >= 0) ::close(number_);
  }

  /// Throws std::system_error with the code in errno.
  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  }

  bool is_open() const noexcept { return number_ >= 0; }
  int descriptor() const noexcept { return number_; }

  static struct stat status_of(int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) fail("cannot read the size");
    return status;
  }
  /// Returns the present size in bytes.
  static std::uint64_t size_of(int descriptor) {
    return static_cast<std::uint64_t>(status_of(descriptor).st_size);
  }
  struct stat status() const {
    return status_of(number_);
  }
  void require_regular() const {
    const auto mode = status().st_mode;
    if (S_ISREG(mode)) return;
    errno = S_ISDIR(mode) ? EISDIR : EINVAL;
    fail("not a regular file");
  }
  /// Returns the present size in bytes.
  std::uint64_t size() const { return size_of(number_); }

  /// Fills `target` with the bytes from `offset` on. Returns the number of bytes, which is smaller
  /// than requested if the file ends before. `what`: the text of the error.
  std::size_t read(std::uint64_t offset, std::span<std::byte> target,
                   const char* what = "cannot read") const {
    std::size_t done = 0;
    while (done < target.size()) {
      const ::ssize_t count = ::pread(number_, target.data() + done, target.size() - done,
                                      static_cast<::off_t>(offset + done));
      if (count == 0) break;
      if (count > 0) done += static_cast<std::size_t>(count);
      if (count < 0 && errno != EINTR) fail(what);
    }
    return done;
  }

  /// Asks the system to read these bytes, or the first 256 MiB of them, into memory soon. It is a
  /// hint without errors.
  void will_need(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    // Of one call, Linux takes only as many bytes as the device reads at once: 128 KiB at least.
    constexpr std::uint64_t kAtOnce = std::uint64_t{128} << 10, kMost = std::uint64_t{256} << 20;
    for (const std::uint64_t end = offset + std::min(bytes, kMost); offset < end; offset += kAtOnce)
      ::posix_fadvise(descriptor(), static_cast<::off_t>(offset),
                      static_cast<::off_t>(std::min(kAtOnce, end - offset)), POSIX_FADV_WILLNEED);
  }

  void write(std::uint64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ::ssize_t count = uninterrupted([&] {
        return ::pwrite(number_, bytes.data(), bytes.size(), static_cast<::off_t>(offset));
      });
      if (count < 0) fail("cannot write");
      offset += static_cast<std::uint64_t>(count);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  /// Returns when all that was written is on the disk.
  void synchronise() const {
    if (uninterrupted([this] { return ::fsync(number_); }) != 0) fail("cannot write");
  }

 private:
  int number_ = -1;
};

/// A regular file that is open for reading. Move-only; a moved-from object has no file. The stores
/// read it instead of mapping it: if another process truncates the file, a read returns fewer
/// bytes, but an access to a mapping ends this process with SIGBUS. Only MappedRecords maps it.
class ReadOnlyFile : public OpenFile {
 public:
  /// Throws std::system_error when the file cannot be opened, or is not a regular file.
  explicit ReadOnlyFile(const std::filesystem::path& path) : ReadOnlyFile(path.c_str()) {}
  /// O_NONBLOCK makes the opening of a pipe an error instead of a wait for its other end.
  explicit ReadOnlyFile(const char* path) : OpenFile(path, O_RDONLY | O_NONBLOCK) {
    if (!is_open()) fail("cannot open");
    require_regular();
  }
};

}  // namespace penstock::detail
