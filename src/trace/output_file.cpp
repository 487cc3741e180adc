// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

namespace penstock::trace::detail {

namespace {

constexpr std::size_t kBuffer = 1 << 20;

/// Of this process and no other file of it, so that two writers of one path do not meet.
std::filesystem::path beside(const std::filesystem::path& path) {
  static std::atomic<unsigned> files{0};
  std::filesystem::path partial = path;
  partial += '.';
  partial += std::to_string(::getpid());
  partial += '.';
  partial += std::to_string(files++);
  partial += ".partial";
  return partial;
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path)
    : path_(std::move(path)), partial_(beside(path_)) {
  buffer_.reserve(kBuffer);
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot create");
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > kBuffer) flush();
  buffer_ += bytes;
}

void OutputFile::commit() {
  flush();
  // A file system may tell of a full disk as late as here.
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed == 0 && ::rename(partial_.c_str(), path_.c_str()) == 0) return;
  const int error = errno;
  ::unlink(partial_.c_str());
  errno = error;
  fail("cannot write");
}

void OutputFile::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno != EINTR) fail("cannot write");
    if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

void OutputFile::fail(const char* what) const {
  throw std::system_error(errno, std::generic_category(), std::string(what) + " " + path_.string());
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace penstock::trace::detail
