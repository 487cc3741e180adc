// SPDX-License-Identifier: Apache-2.0

#include "atomic_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <system_error>
#include <utility>

namespace examples {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial-";
constexpr std::size_t kDigits = 16;

/// Closes it.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

[[noreturn]] void fail_writing(const fs::path& path) {
  throw std::system_error(errno, std::generic_category(), "cannot write " + path.string());
}

void write_all(int descriptor, const char* next, std::size_t bytes, const fs::path& path) {
  while (bytes > 0) {
    const ::ssize_t written = ::write(descriptor, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_writing(path);
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

bool is_partial_of(const std::string& target, const std::string& name) {
  const std::size_t prefix = target.size() + kPartial.size();
  return name.size() == prefix + kDigits && name.starts_with(target) &&
         name.compare(target.size(), kPartial.size(), kPartial) == 0 &&
         name.find_first_not_of("0123456789abcdef", prefix) == std::string::npos;
}

/// Removes the file if its writer is dead: a living one holds the lock.
void remove_if_left(const fs::path& partial) {
  const Descriptor file(
      ::open(partial.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() >= 0 && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(partial.c_str());
}

/// Nothing that goes wrong here is an error: the file can be written all the same.
void remove_left_files(const fs::path& target) {
  const std::string name = target.filename().string();
  std::error_code error;
  for (fs::directory_iterator entry(folder_of(target), error), end; !error && entry != end;
       entry.increment(error))
    if (is_partial_of(name, entry->path().filename().string())) remove_if_left(entry->path());
}

/// A link is not followed.
fs::file_type type_of(const fs::path& path) {
  std::error_code none;
  return fs::symlink_status(path, none).type();
}

/// The name of a file that was just renamed must not be lost when the power is.
void synchronise_folder(const fs::path& path) {
  const fs::path folder = folder_of(path);
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot do this for a folder; one without read permission cannot be opened.
  if (opened.get() < 0 && errno == EACCES) return;
  if (opened.get() < 0 || (fsync(opened.get()) != 0 && errno != EINVAL)) fail_writing(folder);
}

}  // namespace

fs::path partial_name(const fs::path& target) {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != static_cast<::ssize_t>(sizeof(number)))
    fail_writing(target);
  std::array<char, kDigits + 1> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
  return target.string() + std::string(kPartial) + digits.data();
}

AtomicFile::AtomicFile(const fs::path& target)
    : target_(target), partial_(partial_name(target)), name_(partial_.string()) {
  remove_left_files(target_);
  // Another writer may take the file for one that was left, until it is locked: then once more.
  for (struct stat file{}; file.st_nlink == 0;) {
    open();
    if (fstat(descriptor_, &file) != 0) fail_writing(target_);
    if (file.st_nlink == 0) close(std::exchange(descriptor_, -1));
  }
  name_.look();
}

void AtomicFile::open() {
  descriptor_ =
      ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_writing(target_);
  static_cast<void>(flock(descriptor_, LOCK_EX));  // Where there are no locks, nobody removes it.
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  unlink(partial_.c_str());
  close(descriptor_);
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  write_all(descriptor_, static_cast<const char*>(data), bytes, target_);
}

void AtomicFile::commit() {
  // The bytes first: the new name must not come to the disk before them.
  if (fsync(descriptor_) != 0) fail_writing(target_);
  if (rename(partial_.c_str(), target_.c_str()) != 0) fail_writing(target_);
  if (close(std::exchange(descriptor_, -1)) != 0) fail_writing(target_);
  synchronise_folder(target_);
}

void write_file(const fs::path& target, std::string_view text) {
  const fs::file_type type = type_of(target);
  if (type == fs::file_type::not_found || type == fs::file_type::regular) {
    AtomicFile file(target);
    file.write(text);
    return file.commit();
  }
  const Descriptor file(
      ::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY | O_CLOEXEC, 0666));
  if (file.get() < 0) fail_writing(target);
  write_all(file.get(), text.data(), text.size(), target);
}

void require_writable(const fs::path& target) {
  const fs::file_type type = type_of(target);
  if (type == fs::file_type::directory) {
    errno = EISDIR;
    fail_writing(target);
  }
  // Devices and pipes are opened when there is something for them.
  if (type == fs::file_type::not_found || type == fs::file_type::regular)
    static_cast<void>(AtomicFile(target));
}

}  // namespace examples
