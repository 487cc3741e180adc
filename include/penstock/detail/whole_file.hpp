// SPDX-License-Identifier: Apache-2.0
#pragma once

// WholeFile: writes a file completely or not at all, and durably: it survives a loss of power. The
// file is written under another name in the same directory and renamed at the end.

#include <cstdio>
#include <filesystem>
#include <penstock/detail/open_file.hpp>
#include <penstock/version.hpp>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Makes the name of a file that was just renamed survive a loss of power. Throws
/// std::system_error.
inline void synchronise_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const OpenFile opened(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (!opened.is_open() && errno == EACCES) return;  // a directory may be writable but not readable
  if (opened.is_open() && uninterrupted([&] { return ::fsync(opened.descriptor()); }) == 0) return;
  if (errno != EINVAL)  // EINVAL: this file system does not support it
    OpenFile::fail("cannot write the directory");
}

/// All members throw std::system_error with a text that does not name the file.
class WholeFile {
 public:
  explicit WholeFile(std::filesystem::path path) : path_(std::move(path)) {
    for (int attempt = 0; !file_.is_open(); ++attempt) {
      partial_ = path_;
      partial_ += ".partial-" + std::to_string(::getpid()) + std::to_string(attempt);
      file_ = OpenFile(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL);
      if (!file_.is_open() && errno != EEXIST) OpenFile::fail("cannot create a file here");
    }
    buffer_.reserve(kBuffer);
  }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile() {
    if (file_.is_open()) ::unlink(partial_.c_str());
  }

  void write(std::string_view bytes) {
    buffer_ += bytes;
    if (buffer_.size() >= kBuffer) flush();
  }

  /// Completes the file. It replaces an existing file of that name.
  void commit() {
    flush();
    file_.synchronise();
    if (::rename(partial_.c_str(), path_.c_str()) != 0)
      OpenFile::fail("cannot give the file its name");
    file_ = {};
    synchronise_folder_of(path_);
  }

 private:
  static constexpr std::size_t kBuffer = std::size_t{1} << 16;

  void flush() {
    file_.write(written_, std::as_bytes(std::span(buffer_)));
    written_ += buffer_.size();
    buffer_.clear();
  }

  std::filesystem::path path_, partial_;
  OpenFile file_;
  std::string buffer_;
  std::uint64_t written_ = 0;  // bytes that are in the file; later ones are in the buffer
};

}  // namespace penstock::detail
