// SPDX-License-Identifier: Apache-2.0
#pragma once

// WholeFile: a file that is written whole, or not at all, and that a loss of power does not take
// back. It is written under another name in the same directory, and renamed at the end.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace penstock::detail {

/// Calls `call`, which tells an error by a negative number and errno, until no signal interrupts
/// it.
template <class Call>
int uninterrupted(Call call) {
  int result = 0;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

/// Makes the name of a file that was just renamed survive a loss of power. Throws
/// std::system_error.
inline void synchronise_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const int opened =
      uninterrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (opened < 0 && errno == EACCES) return;  // A folder may be writable and not readable.
  const bool synchronised = opened >= 0 && uninterrupted([&] { return ::fsync(opened); }) == 0;
  const int error = synchronised ? 0 : errno;
  if (opened >= 0) ::close(opened);
  if (error != 0 && error != EINVAL)  // which says that this file system has no such thing
    throw std::system_error(error, std::generic_category(), "cannot write the directory");
}

/// All members throw std::system_error, whose text does not name the file.
class WholeFile {
 public:
  explicit WholeFile(std::filesystem::path path) : path_(std::move(path)) {
    for (int attempt = 0; descriptor_ < 0; ++attempt) {
      partial_ = path_;
      partial_ += ".partial-" + std::to_string(::getpid()) + std::to_string(attempt);
      descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ < 0 && errno != EEXIST && errno != EINTR) fail("cannot create a file here");
    }
    buffer_.reserve(kBuffer);
  }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(partial_.c_str());
  }

  void write(std::string_view bytes) {
    buffer_ += bytes;
    if (buffer_.size() >= kBuffer) flush();
  }

  /// The file is complete. It takes the place of one that has its name.
  void commit() {
    flush();
    if (uninterrupted([this] { return ::fsync(descriptor_); }) != 0) fail("cannot write");
    if (::rename(partial_.c_str(), path_.c_str()) != 0) fail("cannot give the file its name");
    ::close(descriptor_);
    descriptor_ = -1;
    synchronise_folder_of(path_);
  }

 private:
  static constexpr std::size_t kBuffer = std::size_t{1} << 16;

  void flush() {
    for (std::string_view left = buffer_; !left.empty();) {
      const ::ssize_t count = ::write(descriptor_, left.data(), left.size());
      if (count >= 0)
        left.remove_prefix(static_cast<std::size_t>(count));
      else if (errno != EINTR)
        fail("cannot write");
    }
    buffer_.clear();
  }
  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  }

  std::filesystem::path path_, partial_;
  std::string buffer_;
  int descriptor_ = -1;
};

}  // namespace penstock::detail
