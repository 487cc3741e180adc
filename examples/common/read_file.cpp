// SPDX-License-Identifier: Apache-2.0

#include "read_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace examples {
namespace {

[[noreturn]] void fail(int error) {
  throw ReadError(std::generic_category().message(error));
}

/// A name that a list has, and no file system: what is before the zero would be opened.
const char* checked(const std::filesystem::path& path) {
  if (path.native().find('\0') != std::string::npos) throw ReadError("its name has a zero byte");
  return path.c_str();
}

/// Of the machine.
std::uint64_t memory_bytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

RegularFile::RegularFile(const std::filesystem::path& path)
    // Without waiting: a pipe that nobody writes must not hold anybody up.
    : descriptor_(open(checked(path), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail(errno);
  struct stat status {};
  const bool regular = fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (regular) return;
  close(descriptor_);
  throw ReadError("no regular file");
}

RegularFile::~RegularFile() {
  close(descriptor_);
}

void RegularFile::append(std::vector<std::byte>& bytes, std::uint64_t most) {
  constexpr std::uint64_t step = std::uint64_t{1} << 20;
  const std::uint64_t expected = bytes.size() + std::min(most, size_);
  // A system may promise memory that it has not, and end the process when it is used.
  if (expected > memory_bytes())
    throw ReadError("there is no memory for its " + std::to_string(size_) + " bytes");
  bytes.reserve(expected);
  while (most > 0) {
    const std::size_t before = bytes.size();
    bytes.resize(before + std::min(step, most));
    ::ssize_t count = 0;
    do count = ::read(descriptor_, bytes.data() + before, bytes.size() - before);
    while (count < 0 && errno == EINTR);
    if (count < 0) fail(errno);
    bytes.resize(before + static_cast<std::size_t>(count));
    if (count == 0) return;
    most -= static_cast<std::uint64_t>(count);
  }
}

std::vector<std::byte> read_file(const std::filesystem::path& path, std::uint64_t limit) {
  RegularFile file(path);
  std::vector<std::byte> bytes;
  if (file.size() <= limit) file.append(bytes, limit + 1);
  if (file.size() > limit || bytes.size() > limit)
    throw ReadError(
        "too large: " + std::to_string(std::max<std::uint64_t>(file.size(), bytes.size())) +
        " bytes, and " + std::to_string(limit) + " are read");
  return bytes;
}

std::vector<std::byte> read_head(const std::filesystem::path& path, std::size_t most) {
  std::vector<std::byte> bytes;
  RegularFile(path).append(bytes, most);
  return bytes;
}

}  // namespace examples
