// SPDX-License-Identifier: Apache-2.0
#include "memory_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "process_identity.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

/// Sets the length of the file. It checks the limit of the process first, because exceeding it
/// would end the process by SIGXFSZ.
bool resize(int file, std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    errno = EFBIG;
    return false;
  }
  return ftruncate(file, static_cast<off_t>(bytes)) == 0;
}

std::string name_of(SharedKind kind, std::uint64_t number) {
  const char* const what = kind == SharedKind::memory  ? "memory"
                           : kind == SharedKind::event ? "event"
                                                       : "pool";
  char name[64];
  std::snprintf(name, sizeof name, "penstock shared %s %016" PRIx64, what, number);
  return name;
}

/// Returns the target of a link of /proc/PROCESS/fd. It is empty if the link does not exist or this
/// process may not read it.
std::string target_of(const std::string& link) {
  char target[128];
  const ssize_t bytes = readlink(link.c_str(), target, sizeof target);
  return bytes > 0 ? std::string(target, static_cast<std::size_t>(bytes)) : std::string();
}

std::string link_of(const char* process, int descriptor) {
  return std::string("/proc/") + process + "/fd/" + std::to_string(descriptor);
}

/// Returns the system's name for such a file in memory.
std::string called(SharedKind kind, std::uint64_t number) {
  return "/memfd:" + name_of(kind, number) + " (deleted)";
}

bool cannot_shrink(int file) {
  const int seals = fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

}  // namespace

std::size_t page_size() {
  static const std::size_t size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_size() - 1) / page_size() * page_size();
}

int make_memory_file(const char* name, std::size_t bytes, unsigned flags) {
  const int made = memfd_create(name, MFD_CLOEXEC | flags);
  if (made < 0) return -1;
  // If standard input is closed, the program must not read this file in its place.
  const int file = made > STDERR_FILENO ? made : fcntl(made, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (file != made) close(made);
  if (file < 0 || resize(file, bytes)) return file;
  const int why = errno;
  close(file);
  errno = why;
  return -1;
}

std::string why_no_file() {
  const int why = errno;
  std::string text = "the system has no file in memory to share (";
  text += std::strerror(why);  // NOLINT(concurrency-mt-unsafe): glibc's is safe
  text += ')';
  if (why == EMFILE)
    text +=
        ": raise the limit of descriptors (ulimit -n), each allocation, event or pool that "
        "processes share takes one";
  if (why == EFBIG) text += ": raise the limit of a file's length (ulimit -f)";
  return text;
}

// ---- SharedFile

std::shared_ptr<SharedFile> SharedFile::create(SharedKind kind, std::size_t bytes) {
  const std::uint64_t number = unique_number();
  const int file = make_memory_file(name_of(kind, number).c_str(), bytes, MFD_ALLOW_SEALING);
  if (file < 0) return nullptr;
  std::shared_ptr<SharedFile> made(new SharedFile(file, number));
  return fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0 ? made : nullptr;
}

std::shared_ptr<SharedFile> SharedFile::find(SharedKind kind, const FilePlace& place) {
  // The descriptor may belong to another file now. That file is not opened, because opening a pipe
  // or a device can block or have side effects.
  const std::string link = link_of(std::to_string(place.process).c_str(), place.descriptor);
  const std::string wanted = called(kind, place.number);
  const std::string found = target_of(link);
  if (found != wanted) {
    if (!found.empty()) errno = ENOENT;
    return nullptr;
  }
  const int file = open(link.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return nullptr;
  std::shared_ptr<SharedFile> opened(new SharedFile(file, place.number));
  if (target_of(link_of("self", file)) == wanted && cannot_shrink(file)) return opened;
  errno = ENOENT;
  return nullptr;
}

std::shared_ptr<SharedFile> SharedFile::of_descriptor(SharedKind kind, int descriptor) {
  const std::string name = descriptor < 0 ? "" : target_of(link_of("self", descriptor));
  const std::size_t digits = name.rfind(" (deleted)");
  if (digits == std::string::npos || digits < 16 || !cannot_shrink(descriptor)) return nullptr;
  const std::uint64_t number = std::strtoull(name.substr(digits - 16, 16).c_str(), nullptr, 16);
  if (name != called(kind, number)) return nullptr;
  const int file = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  return file < 0 ? nullptr : std::shared_ptr<SharedFile>(new SharedFile(file, number));
}

SharedFile::~SharedFile() {
  close(descriptor_);
}

FilePlace SharedFile::place() const {
  return {getpid(), descriptor_, number_};
}

std::size_t SharedFile::bytes() const {
  struct stat status {};
  return fstat(descriptor_, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
}

off_t SharedFile::extend(std::size_t bytes) {
  const std::size_t begin = whole_pages(this->bytes()), end = begin + whole_pages(bytes);
  if (end < begin || end > static_cast<std::size_t>(INT64_MAX) || !resize(descriptor_, end))
    return -1;
  return static_cast<off_t>(begin);
}

void SharedFile::forget(off_t offset, std::size_t bytes) const {
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
            static_cast<off_t>(whole_pages(bytes)));
}

// ---- SharedPages

SharedPages::SharedPages(const SharedFile& file, off_t offset, std::size_t bytes) : bytes_(bytes) {
  const std::size_t length = file.bytes();
  if (offset < 0 || static_cast<std::size_t>(offset) % page_size() != 0 ||
      static_cast<std::size_t>(offset) > length ||
      bytes > length - static_cast<std::size_t>(offset))
    return;
  void* const data = mmap(nullptr, bytes, kReadWrite, MAP_SHARED, file.descriptor(), offset);
  if (data != MAP_FAILED) data_ = data;
}

SharedPages::~SharedPages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

SharedPages::SharedPages(SharedPages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace penstock::emulation::detail
